from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kombu import Connection

from assistant import file_broker


@pytest.fixture
def channel(tmp_path: Path) -> Any:
    file_broker.use()
    options = {name: str(tmp_path) for name in ("data_folder_in", "data_folder_out", "control_folder")}
    with Connection("filesystem://localhost//", transport_options=options) as connection:
        assert isinstance(connection.transport, file_broker.Transport)
        yield connection.channel()


def test_it_shows_a_message_when_it_is_whole(channel: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    real = Path.rename

    def rename(file: Path, target: Path) -> Path:
        seen.extend(path.name for path in tmp_path.glob("*.msg"))
        assert file.stat().st_size > 0
        return real(file, target)

    monkeypatch.setattr(Path, "rename", rename)
    channel._put("builds", {"body": "look at your rows"})
    assert seen == []
    assert channel._get("builds") == {"body": "look at your rows"}
    assert list(tmp_path.glob("*.new")) == []


def test_it_loses_no_message(channel: Any) -> None:
    for number in range(3):
        channel._put("builds", {"number": number})
    assert sorted(channel._get("builds")["number"] for _ in range(3)) == [0, 1, 2]
