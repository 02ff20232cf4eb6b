"""Git as a subprocess: the hardened command line, the pinned connection, the watched run, and what its errors mean.

Sources are hostile. Every command runs without the user's and the system's configuration, without hooks, prompts,
credential helpers, redirects or helper transports, and connections go to the address that was checked. A secret gets
to Git through a pipe (token) or a file that nobody else may read (SSH key), never in an argument, a variable or a
configuration, and is taken out of whatever Git says. A command
that talks to a source is killed, with everything it started, when it is silent for GIT_TIMEOUT_SECONDS.
Callers put text from outside behind `--` or inside a full ref name.
"""

from __future__ import annotations

import os
import re
import selectors
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from django.conf import settings

from indexing.credentials import Secret
from indexing.errors import GitError, InvalidSource, NotARepository, UnknownRef, UnreachableSource
from indexing.models import Credential, Mirror
from indexing.network import public_addresses

Progress = Callable[[str], None]

_CONFIG = {
    "core.fsmonitor": "false",  # a hostile repository's value would be executed
    "core.hooksPath": "/dev/null",
    "credential.helper": "",
    "protocol.ext.allow": "never",
    "http.followRedirects": "false",  # a redirect could lead to an internal host
    "fetch.recurseSubmodules": "false",
    "gc.auto": "0",  # it throws away what no ref names; `git._tidy` only repacks
    "maintenance.auto": "false",
    "safe.directory": "*",
}
_KEPT_VARIABLES = ("PATH", "TMPDIR", "SSH_AUTH_SOCK", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH")
_ASKPASS = Path(__file__).with_name("askpass.sh")
_DEFAULT_PORTS = {"https": 443, "http": 80, "ssh": 22}
_LOCAL_TIMEOUT_SECONDS = 600  # for commands that only read the mirror: a bound, not an expectation
_MAX_OUTPUT_BYTES = 64 * 1024 * 1024  # a host could list refs without end
_MAX_ERROR_BYTES = 64 * 1024
_PIPE_BUFFER_BYTES = 1024 * 1024
_PROGRESS = re.compile(
    rb"(?:remote: )?((?:Enumerating|Counting|Compressing|Receiving|Unpacking|Resolving|Checking)[a-z ]*): +(\d+)%"
)
# In these phases Git works on what it already has and may be silent: the host is not to blame, so it gets longer.
_LOCAL_PHASES = ("resolving", "checking")
_LOCAL_PHASE_FACTOR = 20


class DamagedMirror(GitError):
    """The mirror's own files are at fault: it has to be made anew."""


class WrongAddress(UnreachableSource):
    """The host answered "not here"; web servers that insist on `.git` do so."""


_ASKS_FOR_LOGIN = (
    "{host} asks for a login: {url} does not exist or is private. For a private repository give an access token or an "
    "SSH key (deploy key) that may read it."
)
_REFUSES_LOGIN = (
    "{host} did not accept the login kept for {url}: it ended, was revoked, or may not read this repository. "
    "Enter another one in the settings of the repository."
)
# What the last words of Git stand for; first match wins. {url}, {host} and {seconds} are filled in.
_ERRORS: tuple[tuple[str, type[GitError], str], ...] = (
    (r"No space left on device|Disk quota exceeded", GitError, "The disk is full. Free some space, then retry."),
    (
        r"returned error: 30\d|unable to update url base from redirection",
        WrongAddress,
        "{url} has moved, and redirects are not followed. Use the address it moved to.",
    ),
    (
        r"returned error: 404|repository '.*' not found",
        WrongAddress,
        "{host} says that {url} does not exist. Check the spelling; a private repository needs a login.",
    ),
    (
        r"could not read (Username|Password)|Authentication failed|returned error: 40[13]|terminal prompts disabled"
        r"|Permission denied \(|Repository not found|Access denied",
        UnreachableSource,
        _ASKS_FOR_LOGIN,
    ),
    (
        r"Permission denied",
        UnreachableSource,
        "This server's user may not read {url}. Change the permissions, then retry.",
    ),
    (
        r"Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED",
        UnreachableSource,
        "{host} shows another host key than before. If that is right, remove its line from known_hosts in DATA_DIR.",
    ),
    (
        r"SSL certificate|server certificate|certificate verif|SSL routines|gnutls_handshake",
        UnreachableSource,
        "The certificate of {host} is not trusted. Point GIT_SSL_CAINFO at your authority's file, then retry.",
    ),
    (
        r"transport '.*' not allowed|protocol '.*' not (allowed|supported)",
        InvalidSource,
        "{url} uses a transport that is not allowed. Use https or ssh.",
    ),
    (
        r"does not appear to be a git repository|not valid: is this a git repository|not a git repository: ",
        NotARepository,
        "{url} is not a Git repository. Check the address; for a folder, give the one that holds .git.",
    ),
    (r"couldn't find remote ref|no such remote ref", UnknownRef, "{url} does not have this ref any more. Retry."),
    (
        r"Connection timed out|Operation timed out|Timeout was reached",
        UnreachableSource,
        "{host} did not answer. Check GIT_HTTP_PROXY, then retry.",
    ),
    (
        r"Failed to connect|Couldn't connect|Could not connect|Connection refused|unreachable"
        r"|No route to host|Could not resolve|Connection reset|Connection closed by",
        UnreachableSource,
        "{host} does not accept connections. Check the address and GIT_HTTP_PROXY, then retry.",
    ),
    (
        r"early EOF|hung up unexpectedly|RPC failed|unexpected disconnect|invalid index-pack output",
        UnreachableSource,
        "The connection to {host} broke. Retry.",
    ),
    (
        r"access rights",
        UnreachableSource,
        "{host} closed the connection without giving {url}. Check the address and this server's key, then retry.",
    ),
    (
        r"corrupt|bad object|missing (blob|tree|commit|object)|unable to read|does not point to a valid object"
        r"|not a git repository|cannot read existing|did not send all necessary|inflate|index file .* is too small"
        r"|bad (ref|sha1|config)|Could not read [0-9a-f]|unresolved deltas|garbage at end",
        DamagedMirror,
        "The copy of {url} is damaged. Retry to make it anew.",
    ),
)


@dataclass(frozen=True, slots=True)
class _Login:
    """What a command gets besides its arguments so that it can prove who it is."""

    environment: dict[str, str] = field(default_factory=dict)
    descriptors: tuple[int, ...] = ()


@contextmanager
def _token_in_pipe(secret: Secret, url: str) -> Iterator[_Login]:
    """Git runs askpass.sh, which takes the answers out of a pipe that only this command inherits."""
    reader, writer = os.pipe()
    try:
        with os.fdopen(writer, "w") as answers:  # a pipe holds 64 KiB, so this waits for nobody
            answers.write(f"{secret.username}\n{secret.text}\n")
        scheme, host = urlsplit(url)[:2]
        asked = {"ASKPASS_FD": str(reader), "ASKPASS_SCHEME": scheme, "ASKPASS_HOST": host}
        yield _Login({"GIT_ASKPASS": str(_ASKPASS), **asked}, (reader,))
    finally:
        os.close(reader)


@contextmanager
def _key_in_file(secret: Secret, ssh_command: str) -> Iterator[_Login]:
    """SSH reads keys from files only: one of mode 0600 in a folder of mode 0700, for as long as the command runs.

    The user's configuration, agent and own keys are left out, or somebody with any key could use the server's.
    """
    with tempfile.TemporaryDirectory(prefix="git-key-") as folder:
        key = Path(folder) / "key"
        with open(os.open(key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secret.text)
        options = ("IdentitiesOnly=yes", "IdentityAgent=none", "PreferredAuthentications=publickey")
        chosen = ["-F", os.devnull, "-i", str(key), *(part for option in options for part in ("-o", option))]
        yield _Login({"GIT_SSH_COMMAND": f"{ssh_command} {shlex.join(chosen)}", "SSH_AUTH_SOCK": ""})


@dataclass(frozen=True, slots=True)
class Remote:
    """How to reach a source: its URL, and the configuration and environment that pin the connection."""

    url: str
    host: str
    config: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    secret: Secret | None = None

    @classmethod
    def of(cls, kind: str, url: str, secret: Secret | None = None) -> Remote:
        """Checks the source again, because names and links may have changed since it was added.

        Raises UnreachableSource, InvalidSource or InvalidLogin.
        """
        if kind == Mirror.Kind.LOCAL:
            return cls._local(url)
        if secret is not None:
            secret.check_fits(url)
        return replace(cls._hosted(url), secret=secret)

    @classmethod
    def _local(cls, url: str) -> Remote:
        """The folder is served by git-upload-pack, a child that takes no -c: its settings come from a file."""
        if not Path(url).is_dir():
            raise UnreachableSource(f"{url} is not on this server any more. Put it back, or remove the repository.")
        if str(Path(url).resolve()) != url:
            raise InvalidSource(f"{url} is now a link to another folder. Add that folder itself.")
        config = Path(settings.DATA_DIR) / "mirrors" / "local.gitconfig"
        config.parent.mkdir(parents=True, exist_ok=True)
        if not config.exists():
            config.write_text("[safe]\n\tdirectory = *\n")
        return cls(url, "this server", environment={"GIT_ALLOW_PROTOCOL": "file", "GIT_CONFIG_GLOBAL": str(config)})

    @classmethod
    def _hosted(cls, url: str) -> Remote:
        """The host's name is looked up once; the answer is checked, and used for the connection."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = parts.port or _DEFAULT_PORTS[parts.scheme]
        environment = {"GIT_ALLOW_PROTOCOL": "https:http:ssh"}
        if parts.scheme == "ssh":
            environment["GIT_SSH_COMMAND"] = _ssh_command(host, port, public_addresses(host, port)[0])
            return cls(url, host, [], environment)
        if settings.GIT_HTTP_PROXY:
            # In the environment and not in an argument, because it may hold a password. The proxy looks names up
            # itself, so pinning is its business; what this server can look up is checked all the same.
            environment |= {"http_proxy": settings.GIT_HTTP_PROXY, "https_proxy": settings.GIT_HTTP_PROXY}
            _refuse_internal_if_known(host, port)
            return cls(url, host, [], environment)
        addresses = [f"[{address}]" if ":" in address else address for address in public_addresses(host, port)]
        if f"[{host}]" in addresses:
            return cls(url, host, [], environment)  # an IPv6 address is pinned as it is, and has no place in the option
        return cls(url, host, ["-c", f"http.curloptResolve={host}:{port}:{','.join(addresses)}"], environment)

    def talk(self, mirror_path: Path | None, arguments: Callable[[str], list[str]], report: Progress | None) -> bytes:
        """Standard output of the command that `arguments` makes from the URL.

        `report` gets a short text about once a second; what it raises ends the command. Raises a GitError.
        """
        start = [*_command(mirror_path), *self.config]
        try:
            return self._watched([*start, *arguments(self.url)], report)
        except WrongAddress:
            # The second answer only counts when it is a good one: the first is about the URL that the person knows.
            if not self.url.startswith("http"):
                raise
            try:
                return self._watched([*start, *arguments(f"{self.url}.git")], report)
            except WrongAddress:
                pass
            raise

    def speaks_git(self) -> bool:
        """Whether the host of an empty listing talks as Git does: a web page without a line break lists nothing too."""
        if not self.url.startswith("http"):
            return True
        with tempfile.NamedTemporaryFile() as packets:
            traced = replace(self, environment={**self.environment, "GIT_TRACE_PACKET": packets.name})
            traced.talk(None, lambda url: ["ls-remote", "--", url], None)
            return bool(packets.read(1))

    def _watched(self, command: list[str], report: Progress | None) -> bytes:
        with self._login() as login:
            environment = _environment() | self.environment | login.environment
            with _process_group(command, environment, login.descriptors) as process:
                output, errors = self._drain(process, report)
                code = process.wait()
        if code:
            raise self._error(errors)
        return output

    def _login(self) -> AbstractContextManager[_Login]:
        if self.secret is None:
            return nullcontext(_Login())
        if self.secret.kind == Credential.Kind.KEY:
            return _key_in_file(self.secret, self.environment["GIT_SSH_COMMAND"])
        return _token_in_pipe(self.secret, self.url)

    def _drain(self, process: subprocess.Popen[bytes], report: Progress | None) -> tuple[bytes, bytes]:
        """Read both pipes until they close; raises UnreachableSource after too long a silence."""
        assert process.stdout is not None
        assert process.stderr is not None
        output, errors = bytearray(), bytearray()
        said, heard_at, reported_at = f"waiting for {self.host}", time.monotonic(), 0.0
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ, output)
            selector.register(process.stderr, selectors.EVENT_READ, errors)
            while selector.get_map():
                events = selector.select(timeout=min(1.0, settings.GIT_TIMEOUT_SECONDS))
                for key, _ in events:
                    if received := os.read(key.fd, 65536):
                        key.data.extend(received)
                    else:
                        selector.unregister(key.fileobj)
                now = time.monotonic()
                if events:
                    heard_at, said = now, _last_progress(errors) or said
                elif now - heard_at >= _patience_seconds(said):
                    raise self._silence(said)
                if len(output) > _MAX_OUTPUT_BYTES:
                    raise GitError(f"{self.url} lists more refs than this server accepts.")
                del errors[:-_MAX_ERROR_BYTES]
                if report and now - reported_at >= 1:
                    reported_at = now
                    report(said)
        return bytes(output), bytes(errors)

    def _silence(self, said: str) -> UnreachableSource:
        seconds = _patience_seconds(said)
        if said.startswith("waiting"):
            way_out = "GIT_HTTP_PROXY" if self.url.startswith("http") else "its address"
            return UnreachableSource(f"{self.host} did not answer within {seconds} s. Check {way_out}, then retry.")
        return UnreachableSource(f"{self.host} sent nothing for {seconds} s while {said}. Retry.")

    def _error(self, errors: bytes) -> GitError:
        """Only Git's own lines count: those from the other side (`remote: ...`) could say anything."""
        lines = errors.decode(errors="replace").replace("\r", "\n").splitlines()
        own = " ".join(line for line in lines if not line.startswith("remote:"))
        for pattern, kind, sentence in _ERRORS:
            if re.search(pattern, own):
                if self.secret is not None and sentence is _ASKS_FOR_LOGIN:
                    sentence = _REFUSES_LOGIN
                return kind(sentence.format(url=self.url, host=self.host))
        words = _last_words(lines)
        if self.secret is not None:
            words = words.replace(self.secret.text, "•••")
        return GitError(f"Git could not read {self.url}: {words}")


def git(mirror_path: Path | None, *arguments: str | bytes, check: bool = True) -> subprocess.CompletedProcess[bytes]:
    """A command that only touches the mirror. Raises GitError when it fails and `check` is set."""
    command: list[str | bytes] = [*_command(mirror_path), *arguments]
    with _started(command, _environment(), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            output, errors = process.communicate(timeout=_LOCAL_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired as error:
            process.kill()
            raise GitError(f"Git took more than {error.timeout:.0f} s to read its mirror. Check the disk.") from error
    if check and process.returncode:
        raise GitError(f"Git failed on its mirror: {_last_words(errors.decode(errors='replace').splitlines())}")
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


@contextmanager
def running(mirror_path: Path, *arguments: str | bytes) -> Iterator[subprocess.Popen[bytes]]:
    """A command on the mirror whose pipes the caller uses while it runs; it ends with the block."""
    command: list[str | bytes] = [*_command(mirror_path), *arguments]
    with _started(command, _environment(), stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()
            with suppress(BrokenPipeError):  # of what a process that ended early did not take
                process.stdin.close()  # type: ignore[union-attr]  # a pipe


@contextmanager
def _process_group(
    command: list[str], environment: dict[str, str], descriptors: tuple[int, ...]
) -> Iterator[subprocess.Popen[bytes]]:
    """Git starts helpers (git-remote-https, ssh, index-pack); killing the group ends them all."""
    pipes = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with _started(command, environment, **pipes, descriptors=descriptors) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def _started(
    command: Sequence[str | bytes],
    environment: dict[str, str],
    *,
    stdin: int,
    stderr: int,
    descriptors: tuple[int, ...] = (),
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            env=environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=stderr,
            pass_fds=descriptors,
            start_new_session=True,
            bufsize=_PIPE_BUFFER_BYTES,
        )
    except FileNotFoundError as error:
        raise GitError("Git is not installed on this server. Install git 2.37 or newer.") from error


def _command(mirror_path: Path | None) -> list[str]:
    config = [part for name, value in _CONFIG.items() for part in ("-c", f"{name}={value}")]
    return ["git", *config, *([f"--git-dir={mirror_path}"] if mirror_path else [])]


def _environment() -> dict[str, str]:
    """Nothing of this process's environment but what Git needs to run."""
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    return kept | {
        "HOME": str(settings.DATA_DIR),
        # Not LC_ALL: errors are recognised by their words, so they stay English, but letters are letters in searches.
        "LC_CTYPE": "C.UTF-8",
        "GIT_ALLOW_PROTOCOL": "file",
        "GIT_ASKPASS": "false",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_SSH_VARIANT": "ssh",
        "GIT_TERMINAL_PROMPT": "0",
    }


def _ssh_command(host: str, port: int, address: str) -> str:
    """Connects to the checked address and still compares the host key under the host's name.

    The first key that a host shows is remembered below DATA_DIR; another one later is refused.
    """
    known_hosts = Path(settings.DATA_DIR) / "known_hosts"
    options = {
        "BatchMode": "yes",
        "HostName": address,
        "HostKeyAlias": host if port == _DEFAULT_PORTS["ssh"] else f"[{host}]:{port}",
        "StrictHostKeyChecking": "accept-new",
        "UserKnownHostsFile": f'"{known_hosts}" ~/.ssh/known_hosts',
        "ConnectTimeout": str(settings.GIT_TIMEOUT_SECONDS),
        "ControlMaster": "no",
        "ControlPath": "none",
        "ForwardAgent": "no",
        "PermitLocalCommand": "no",
    }
    return shlex.join(["ssh", *(part for name, value in options.items() for part in ("-o", f"{name}={value}"))])


def _refuse_internal_if_known(host: str, port: int) -> None:
    try:
        public_addresses(host, port)
    except UnreachableSource:
        return  # only the proxy knows this name


def _last_progress(errors: bytes | bytearray) -> str:
    """ "receiving objects 42 %" from Git's progress lines, "" when there is none."""
    found = _PROGRESS.findall(errors[-2000:])
    return f"{found[-1][0].decode().lower()} {int(found[-1][1])} %" if found else ""


def _patience_seconds(said: str) -> int:
    return settings.GIT_TIMEOUT_SECONDS * (_LOCAL_PHASE_FACTOR if said.startswith(_LOCAL_PHASES) else 1)


def _last_words(lines: list[str]) -> str:
    """The last error line, short, printable and without anything that looks like a login in a URL."""
    own = [line for line in lines if line.startswith(("fatal:", "error:"))]
    text = "".join(character for character in (own[-1] if own else "no reason given") if character.isprintable())
    return re.sub(r"//[^/@\s]+@", "//", text)[:300]
