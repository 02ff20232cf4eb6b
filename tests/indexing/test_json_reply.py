"""Replies of language models as they are seen in the wild, and what can be taken from them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexing import json_reply
from indexing.errors import LLMBadReply


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('Sure! Here it is:\n```\n{"a": [1, 2]}\n``` Hope it helps {really}.', {"a": [1, 2]}),
        ('<think>maybe {"a": 0}?</think>{"a": 1}', {"a": 1}),
        ('I saw {"a": 0} first.</think>{"a": 1}', {"a": 1}),
        ('{"a": [1, 2,], "b": {"c": 3,},}', {"a": [1, 2], "b": {"c": 3}}),
        ("{'a': True, 'b': None, 'c': 'it\\'s'}", {"a": True, "b": None, "c": "it's"}),
        ("{a: 1, b: false}", {"a": 1, "b": False}),
        ('{"a": "line\nbreak"}', {"a": "line\nbreak"}),
        ('As [1] says: {"a": 1, "b": 2} and {"c": 3}', {"a": 1, "b": 2}),
        ('[{"id": 1} {"id": 2}]', [{"id": 1}, {"id": 2}]),
        ('{"a": NaN}', {"a": None}),
        ('{"a": %s, "b": 2}' % ("9" * 5000), {"a": None, "b": 2}),
        ('{"a": "\\u00e9\\q", "b": 1,}', {"a": "éq", "b": 1}),
    ],
)
def test_it_reads(reply: str, value: object) -> None:
    assert json_reply.read(reply) == value


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        ('{"ids": [3, 1], "why": "the par', {"ids": [3, 1]}),
        ('{"ids": [3, 1', {"ids": [3]}),  # 1 may have been the begin of 12
        ('[{"id": 1, "score": 2}, {"id": 2, "sco', [{"id": 1, "score": 2}, {"id": 2}]),
        ('```json\n{"a": {"b": "c"}, "d"', {"a": {"b": "c"}}),
        ('{"a": 1, "b": tru', {"a": 1}),
    ],
)
def test_it_leaves_out_what_was_cut(reply: str, value: object) -> None:
    assert json_reply.read(reply) == value


@pytest.mark.parametrize(
    "reply", ["", "great!", "<think>{'a': 1}", "{the function} [", "12", '"text"', "{" * 5000, "[" * 5000]
)
def test_it_refuses_a_reply_without_json(reply: str) -> None:
    with pytest.raises(LLMBadReply):
        json_reply.read(reply)


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="{}[]\",:\\ \n'tfn1-.e`<>", max_size=60))
def test_it_gives_json_or_refuses_whatever_comes(reply: str) -> None:
    try:
        value = json_reply.read(reply)
    except LLMBadReply:
        return
    assert isinstance(value, dict | list)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.text(max_size=5), st.lists(st.integers() | st.text(max_size=9) | st.booleans())), st.data())
def test_it_never_invents_a_value_when_the_reply_is_cut(value: dict[str, list[object]], data: st.DataObject) -> None:
    text = json.dumps(value)
    cut = text[: data.draw(st.integers(1, len(text)))]
    try:
        found = json_reply.read(cut)
    except LLMBadReply:
        return
    assert all(value[key][: len(part)] == part for key, part in found.items())
