#!/bin/sh
# GIT_ASKPASS: what Git asks -> a line of the pipe that git_process.py left open: first the user name, then the token.
# Only questions about the source itself are answered; a proxy or another host that asks for a login gets nothing.
case "$1" in
"Username for '$ASKPASS_SCHEME://$ASKPASS_HOST': " | "Password for '$ASKPASS_SCHEME://"*"@$ASKPASS_HOST': ")
  IFS= read -r answer <"/dev/fd/$ASKPASS_FD" && printf '%s\n' "$answer"
  ;;
*)
  exit 1
  ;;
esac
