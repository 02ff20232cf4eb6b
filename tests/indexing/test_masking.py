"""Secrets are replaced, examples stay, positions do not move."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexing.masking import BULLET, mask_secrets

RANDOM = "q8Zt3LmX0vRk5YpW2nHs7Jd4"  # no key of anything
KEY_LINES = "\n".join(f"{RANDOM}{RANDOM}{RANDOM[:15]}{line}" for line in range(5))
PRIVATE_KEY = f"-----BEGIN RSA PRIVATE KEY-----\n{KEY_LINES}\n-----END RSA PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    ("before", "secret", "after"),
    [
        ("AWS = '", "AKIAQ8ZT3LMX0VRK5YPW", "'"),
        ("", f"ghp_{RANDOM}{RANDOM[:12]}", " in a comment"),
        ("see ", f"xoxb-123456789012-{RANDOM}", ""),
        ("key=", f"AIza{RANDOM}{RANDOM[:11]}", ""),
        ("jwt: ", f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJxMiJ9.{RANDOM}", ""),
        ("SECRET_KEY = '", RANDOM, "'"),
        ('"clientSecret": "', RANDOM, '",'),
        ("token: str = '", RANDOM, "'"),
        ("api_key=", RANDOM, "\n"),
        ("  password: ", "Tr0ub4dor", "\nuser: me"),
        ('password = "', "hunter2", '"'),
        ("postgres://app:", "S3kr3tpw", "@db/shop"),
        ("Authorization: Bearer ", RANDOM, ""),
        ('İ = 1; password = "', "hunter2", '"'),
    ],
)
def test_it_masks_a_secret_and_nothing_else(before: str, secret: str, after: str) -> None:
    assert mask_secrets(before + secret + after) == before + BULLET * len(secret) + after


@pytest.mark.parametrize(
    "text",
    [
        'password = "changeme"',
        '{% set password = "changeme" %}',
        'api_key = "your-api-key-here-12345"',
        "AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE",
        'token = os.environ["API_TOKEN_V2_2024"]',
        "password: ${DB_PASSWORD_2}",
        "postgres://postgres:postgres@localhost/db",
        'password_hasher = "pbkdf2"',
        'token_url = "https://login.example.org/oauth2/v2/token"',
        "token = next_token(stream, 16)",
        'label = "Enter your password 2 times"',
        "sha256 = 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'",
        'curl["USERPWD"] = "$value[0]:$value[1]";',
    ],
)
def test_it_leaves_examples_and_code_alone(text: str) -> None:
    assert mask_secrets(text) == text


def test_it_masks_the_body_of_a_private_key_and_keeps_its_lines() -> None:
    masked = mask_secrets(PRIVATE_KEY + "def total(): return 'a string of some length'\n")
    lines = masked.splitlines()
    assert lines[0] == "-----BEGIN RSA PRIVATE KEY-----"
    assert lines[1:6] == [BULLET * 64] * 5
    assert lines[6:] == ["-----END RSA PRIVATE KEY-----", "def total(): return 'a string of some length'"]


@pytest.mark.parametrize("part", [slice(0, 200), slice(32, 300), slice(97, None)])
def test_it_masks_a_part_of_a_private_key(part: slice) -> None:
    masked = mask_secrets(PRIVATE_KEY[part])
    assert masked.count(BULLET) >= 128
    assert RANDOM not in masked.splitlines()[1]


def test_it_masks_a_private_key_inside_a_string() -> None:
    text = f'"private_key": "-----BEGIN PRIVATE KEY-----\\n{RANDOM}\\n-----END PRIVATE KEY-----\\n"'
    assert mask_secrets(text) == text.replace(RANDOM, BULLET * len(RANDOM))


@given(st.text())
def test_it_never_moves_a_character(text: str) -> None:
    masked = mask_secrets(f"password = '{text}'\n{text}")
    assert len(masked) == len(f"password = '{text}'\n{text}")


@pytest.mark.parametrize(
    "piece", ["password", 'token="', "-----BEGIN PRIVATE KEY-----", "://a:", "token :a=", "eyJaaaaaaaaaa."]
)
def test_it_is_quick_on_hostile_text(piece: str) -> None:
    started = time.process_time()
    mask_secrets(piece * (200_000 // len(piece)))
    assert time.process_time() - started < 2
