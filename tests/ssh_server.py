"""A real OpenSSH server on loopback that lets one key in, to fetch from Git repositories and for nothing else."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
needs_sshd = pytest.mark.skipif(
    SSHD is None or shutil.which("git-shell") is None,
    reason="there is no SSH server here (Debian: apt-get install openssh-server)",
)
CONFIG = """
ListenAddress 127.0.0.1:{port}
HostKey {folder}/host_key
PidFile none
AuthorizedKeysFile {folder}/authorized_keys
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin forced-commands-only
LogLevel VERBOSE
"""


@dataclass
class SshServer:
    folder: Path
    port: int

    def url(self, repository: Path) -> str:
        return f"ssh://{getpass.getuser()}@127.0.0.1:{self.port}{repository}"

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()


def make_key(file: Path) -> str:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", file], check=True)
    return file.read_text()


@contextmanager
def serving(folder: Path, public_key: str, *, port: int = 0) -> Iterator[SshServer]:
    """Under a host key of its own; `port` 0: any."""
    folder.mkdir()
    make_key(folder / "host_key")
    (folder / "authorized_keys").write_text(f'restrict,command="git-shell -c \\"$SSH_ORIGINAL_COMMAND\\"" {public_key}')
    server = SshServer(folder, port or _free_port())
    (folder / "config").write_text(CONFIG.format(port=server.port, folder=folder))
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where sshd, as root, locks itself in
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([str(SSHD), "-D", "-e", "-f", folder / "config"], stderr=log)
    try:
        _wait_for(server, process)
        yield server
    finally:
        process.terminate()
        process.wait(10)


def _wait_for(server: SshServer, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", server.port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"sshd did not start: {server.log}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
