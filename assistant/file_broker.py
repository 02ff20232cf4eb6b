"""Kombu's filesystem transport, whose messages appear whole: written under another name first, then renamed.

The original makes the file and then fills it; a worker that looks in between takes an empty message and loses it.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from time import monotonic
from typing import Any

from kombu.exceptions import ChannelError
from kombu.transport import TRANSPORT_ALIASES, filesystem
from kombu.utils.encoding import str_to_bytes
from kombu.utils.json import dumps


class Channel(filesystem.Channel):  # type: ignore[misc]  # Kombu has no types
    def _put(self, queue: str, payload: dict[str, Any], **_options: Any) -> None:  # Any: whatever a message holds
        folder = Path(self.data_folder_out)
        name = f"{round(monotonic() * 1000)}_{uuid.uuid4()}.{queue}.msg"
        unfinished = folder / f"{name}.new"  # ends unlike what workers look for
        try:
            unfinished.write_bytes(str_to_bytes(dumps(payload)))
            unfinished.rename(folder / name)
        except OSError as error:
            raise ChannelError(f"The message {name} cannot be written into {folder}. Check the disk.") from error


class Transport(filesystem.Transport):  # type: ignore[misc]  # Kombu has no types
    Channel = Channel


def use() -> None:
    """Brokers named `filesystem://` are this one from now on."""
    TRANSPORT_ALIASES["filesystem"] = "assistant.file_broker:Transport"
