"""Internal addresses are refused unless an operator listed the host."""

from __future__ import annotations

import ipaddress
import socket

import pytest
from pytest_django import Settings

from indexing.errors import InvalidSource, UnreachableSource
from indexing.network import is_internal, public_addresses


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "::1",
        "::",
        "fe80::1",
        "fd00::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
    ],
)
def test_it_knows_internal_addresses(address: str) -> None:
    assert is_internal(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["140.82.121.4", "2606:4700::1111", "64:ff9b::8c52:7904"])
def test_it_knows_public_addresses(address: str) -> None:
    assert not is_internal(ipaddress.ip_address(address))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "127.1", "2130706433"])
def test_it_refuses_internal_hosts_however_they_are_written(host: str) -> None:
    with pytest.raises(InvalidSource, match="GIT_ALLOWED_HOSTS"):
        public_addresses(host, 443)


def test_it_refuses_a_host_with_one_internal_address(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 443)) for ip in ("140.82.121.4", "10.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: answers)
    with pytest.raises(InvalidSource, match=r"git\.example is an internal address"):
        public_addresses("git.example", 443)


def test_it_allows_listed_hosts(settings: Settings) -> None:
    settings.GIT_ALLOWED_HOSTS = ["LOCALHOST"]
    assert "127.0.0.1" in public_addresses("localhost", 80)


def test_it_names_a_host_without_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(UnreachableSource, match=r"git\.example has no address"):
        public_addresses("git.example", 443)
