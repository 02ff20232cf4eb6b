"""What `indexing.openai_stream` makes of the bytes that a server sends."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from indexing.openai_stream import Arrived, BrokenOff, read

DONE = b"data: [DONE]\n\n"


class Response:
    """An opened response, whose reads are scripted: bytes, or the error that one raises."""

    def __init__(self, *reads: bytes | Exception) -> None:
        self.reads = reads
        self.left = len(reads)

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        for data in self.reads:
            self.left -= 1
            if isinstance(data, Exception):
                raise data
            yield data


def event(content: str | None = None, reason: str | None = None, **more: object) -> bytes:
    choice = {"index": 0, "delta": {"content": content} if content else {}, "finish_reason": reason}
    return f"data: {json.dumps({'choices': [choice], **more})}\n\n".encode()


async def arrived(*reads: bytes | Exception) -> list[Arrived]:
    return [part async for part in read(Response(*reads))]


async def test_it_hands_on_together_what_has_arrived_together() -> None:
    usage = b'data: {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}}\n\n'
    reads = [event("one "), event("two ") + event("three") + event(reason="stop") + usage + DONE]
    assert await arrived(*reads) == [Arrived("one "), Arrived("two three", "stop", 9, 3)]


async def test_it_waits_for_the_rest_of_an_event_wherever_it_was_cut() -> None:
    whole = event("naïve ") + event("text", "length") + DONE.rstrip()
    for cut in range(1, len(whole)):
        parts = await arrived(whole[:cut], whole[cut:])
        assert ("".join(part.text for part in parts), parts[-1].finish_reason) == ("naïve text", "length")


async def test_it_reads_past_comments_names_and_carriage_returns() -> None:
    noise = b": working\r\n\r\nevent: message\r\nid: 1\r\n"
    assert await arrived(noise, event("yes", "stop").replace(b"\n", b"\r\n"), DONE) == [Arrived("yes", "stop")]


async def test_it_leaves_out_thoughts_tools_and_roles() -> None:
    others = b'data: {"choices": [{"delta": {"role": "assistant", "reasoning_content": "hm", "content": null}}]}\n\n'
    assert await arrived(others + event("yes", "stop"), DONE) == [Arrived("yes", "stop")]


@pytest.mark.parametrize(
    "end",
    [
        b"",
        OSError("reset"),
        b'data: {"error": {"message": "out of memory"}}\n\n',
        b"data: {cut\n\n",
        b"data: 1\n\n",
        event(reason="error"),
        event(reason="abort"),
    ],
)
async def test_it_tells_what_was_written_before_it_says_that_the_reply_broke_off(end: bytes | Exception) -> None:
    together = event("half ") + end if isinstance(end, bytes) else event("half ")
    parts = read(Response(together, end))
    assert (await anext(parts)).text == "half "
    with pytest.raises(BrokenOff):
        await anext(parts)


async def test_it_takes_a_reply_for_whole_when_the_connection_breaks_after_its_end() -> None:
    assert await arrived(event("yes", "stop"), OSError("reset")) == [Arrived("yes", "stop")]


async def test_it_takes_a_reply_for_whole_whose_server_never_says_why_it_ended() -> None:
    assert await arrived(event("yes") + DONE) == [Arrived("yes")]


async def test_it_reads_the_body_to_its_end_so_that_the_connection_can_be_used_again() -> None:
    response = Response(event("yes", "stop") + DONE, b"\n")
    assert [part.text async for part in read(response)] == ["yes"]
    assert response.left == 0
