#!/bin/sh
# deploy/restore.sh FOLDER: what deploy/backup.sh wrote, into an empty DATA_DIR and an empty database of DATABASE_URL.
# Afterwards: manage.py migrate, then manage.py rebuild_index --missing.
set -eu
folder=${1:?name the folder of the backup}
data=${DATA_DIR:-var}
if [ -e "$data/mirrors" ] && [ -n "$(ls -A "$data/mirrors")" ]; then
  echo "$data/mirrors is not empty; restore into an empty DATA_DIR." >&2
  exit 1
fi
mkdir -p "$data"
if [ -n "${DATABASE_URL:-}" ]; then
  pg_restore --no-owner --exit-on-error --dbname="$DATABASE_URL" "$folder/database.dump"
else
  cp "$folder/database.sqlite3" "$data/db.sqlite3"
fi
tar --extract --file="$folder/mirrors.tar" --directory="$data"
[ ! -f "$folder/known_hosts" ] || cp "$folder/known_hosts" "$data/known_hosts"
[ ! -f "$folder/secret_key" ] || install -m 600 "$folder/secret_key" "$data/secret_key"
echo "Restored. Now: manage.py migrate && manage.py rebuild_index --missing"
