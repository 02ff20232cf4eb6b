from __future__ import annotations

import time

import pytest

from search.stack_traces import Frame, read_stack_trace

PYTHON = """It fails, why?
Traceback (most recent call last):
  File "/srv/app/shop/views.py", line 10, in checkout
    cancel_order(number)
  File "/srv/app/shop/orders.py", line 3, in cancel_order
    raise ValueError(number)
ValueError: no such order
"""
JAVA = """Exception in thread "main" java.lang.IllegalStateException: closed
\tat com.acme.shop.Orders.cancel(Orders.java:41)
\tat java.base/java.lang.Thread.run(Thread.java:833)
"""
NODE = """TypeError: x is undefined
    at Object.cancel [as cancel] (/srv/app/src/orders.js:12:5)
    at async C:\\app\\src\\main.ts:3:1
"""
GO = """panic: runtime error: index out of range

goroutine 1 [running]:
main.(*Server).Serve(0xc000010000)
\t/home/a/shop/server.go:27 +0x1d
"""
RUST = """thread 'main' panicked at src/main.rs:4:5:
   2: shop::orders::cancel
             at ./src/orders.rs:9:13
"""
DOTNET = """System.InvalidOperationException: closed
   at Acme.Shop.Orders.Cancel(Int32 number) in C:\\src\\Shop\\Orders.cs:line 17
"""
FIREFOX = "cancel@https://shop.example/src/orders.js:12:5\n"


@pytest.mark.parametrize(
    ("text", "frames"),
    [
        (
            PYTHON,
            [Frame("/srv/app/shop/orders.py", 3, "cancel_order"), Frame("/srv/app/shop/views.py", 10, "checkout")],
        ),
        (JAVA, [Frame("com/acme/shop/Orders.java", 41, "cancel"), Frame("java/lang/Thread.java", 833, "run")]),
        (NODE, [Frame("/srv/app/src/orders.js", 12, "cancel"), Frame("C:/app/src/main.ts", 3, "")]),
        (GO, [Frame("/home/a/shop/server.go", 27, "Serve")]),
        (RUST, [Frame("src/main.rs", 4, ""), Frame("src/orders.rs", 9, "cancel")]),
        (DOTNET, [Frame("C:/src/Shop/Orders.cs", 17, "Cancel")]),
        (FIREFOX, [Frame("/src/orders.js", 12, "cancel")]),
    ],
)
def test_it_reads_frames_from_the_error_outwards(text: str, frames: list[Frame]) -> None:
    trace = read_stack_trace(text)
    assert trace is not None
    assert list(trace.frames) == frames


@pytest.mark.parametrize(("text", "frames"), [(PYTHON, 2), (JAVA, 2), (NODE, 2), (DOTNET, 1)])
def test_it_reads_frames_that_a_text_box_put_on_one_line(text: str, frames: int) -> None:
    trace = read_stack_trace(text.replace("\n", ""))
    whole = read_stack_trace(text)
    assert trace is not None
    assert whole is not None
    assert trace.frames == whole.frames[:frames]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PYTHON, "ValueError: no such order"),
        (NODE, "TypeError: x is undefined"),
        (DOTNET, "System.InvalidOperationException: closed"),
        (GO, "panic: runtime error: index out of range"),
    ],
)
def test_it_reads_what_went_wrong(text: str, message: str) -> None:
    trace = read_stack_trace(text)
    assert trace is not None
    assert trace.message == message


def test_it_makes_words_to_search_with() -> None:
    trace = read_stack_trace(PYTHON)
    assert trace is not None
    assert trace.query == "ValueError: no such order cancel_order() checkout() orders.py views.py"


@pytest.mark.parametrize("text", ["", "how is an order cancelled", "look at src/main.py:3", "at home (a:b)", "@" * 900])
def test_it_finds_no_frames_in_other_text(text: str) -> None:
    assert read_stack_trace(text) is None


@pytest.mark.parametrize("part", ["at a.", "at (((", "  1: a::", 'File "', "@:1:", "a@b", "at new x (", "Error"])
def test_it_is_not_slowed_down_by_hostile_text(part: str) -> None:
    begun = time.perf_counter()
    read_stack_trace("\n".join([part * 4000] * 20))
    assert time.perf_counter() - begun < 1
