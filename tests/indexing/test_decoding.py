"""Encodings: recognised, decoded strictly, or refused."""

from __future__ import annotations

import pytest

from indexing.decoding import decode, decode_source

SAMPLES = {
    "cp1252": "# café, Größe\ndef total(): return 1\n",
    "cp1251": "# Считает сумму заказа\ndef total(): return 1\n",
    "koi8_r": "# Считает сумму заказа\ndef total(): return 1\n",
    "cp932": "# 注文の合計を計算します\ndef total(): return 1\n",
    "euc_jp": "# 注文の合計を計算します\ndef total(): return 1\n",
    "gb18030": "# 计算订单的总金额并返回结果\ndef total(): return 1\n",
    "big5": "# 計算訂單的總金額並返回結果\ndef total(): return 1\n",
    "euc_kr": "# 주문 합계를 계산하여 반환합니다\ndef total(): return 1\n",
    "cp1250": "# zażółć gęślą jaźń, sprawdź długość\ndef total(): return 1\n",
}


@pytest.mark.parametrize("encoding", SAMPLES)
def test_it_recognises_legacy_encodings(encoding: str) -> None:
    decoded = decode_source(SAMPLES[encoding].encode(encoding))
    assert decoded is not None
    assert decoded.encoding == encoding
    assert decoded.text.decode() == SAMPLES[encoding]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_it_recognises_unicode_with_and_without_mark(encoding: str) -> None:
    decoded = decode_source("# 日本語\ndef total(): return 1  # sum of all\n".encode(encoding))
    assert decoded is not None
    assert decoded.text.decode() == "# 日本語\ndef total(): return 1  # sum of all\n"


@pytest.mark.parametrize("encoding", [*SAMPLES, "utf-8-sig", "utf-16"])
def test_it_points_at_the_original_bytes(encoding: str) -> None:
    text = SAMPLES.get(encoding, SAMPLES["cp932"])
    raw = text.encode(encoding)
    decoded = decode_source(raw)
    assert decoded is not None
    start = decoded.offsets.to_raw(decoded.text.index(b"def total"))
    end = decoded.offsets.to_raw(len(decoded.text))
    assert decode(raw[start:end], decoded.encoding) == "def total(): return 1\n"


def test_it_hands_on_plain_utf8_itself() -> None:
    raw = "é = 1\n".encode()
    decoded = decode_source(raw)
    assert decoded is not None
    assert decoded.text is raw


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param("é ü ñ".encode() + b" \xff", id="UTF-8 with a fault"),
        pytest.param(bytes(range(128, 256)) * 3, id="all high bytes"),
        pytest.param(b"x\0y", id="NUL"),
        pytest.param(b"\xff\xfea\x00\x00\xd8b\x00", id="UTF-16 with half a pair"),
    ],
)
def test_it_refuses_what_fits_no_encoding(raw: bytes) -> None:
    assert decode_source(raw) is None


def test_it_never_fails_for_viewers() -> None:
    assert decode(b"a\xffb", "utf-8") == "a\ufffdb"
    assert decode(b"\xef\xbb\xbfa", "utf-8") == "a"
    assert decode(b"abc", "no-such-encoding") == "abc"
