"""Host names -> addresses that may be connected to.

A person who may add repositories or name addresses for callbacks must not be able to make this server talk to the
network behind it. Internal addresses are refused unless the host is listed in a setting; what was checked is returned,
so that the connection can be pinned to it and a second DNS answer cannot lead elsewhere.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence

from django.conf import settings

from indexing.errors import InvalidSource, UnreachableSource

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
# Addresses that carry an IPv4 address for a translator on the way: NAT64, RFC 6052.
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def public_addresses(
    host: str, port: int, *, allowed: Sequence[str] | None = None, setting: str = "GIT_ALLOWED_HOSTS"
) -> list[str]:
    """All addresses of a host, in the resolver's order. `allowed`: internal hosts that `setting` lists.

    Raises UnreachableSource when there is none and InvalidSource when one is internal and the host is not listed.
    """
    host = host.strip("[]")
    try:
        answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UnreachableSource(
            f"The host name {host} has no address. Check the spelling and this server's DNS, then retry."
        ) from error
    addresses = list(dict.fromkeys(str(answer[4][0]).partition("%")[0] for answer in answers))
    listed = host in {name.lower() for name in (settings.GIT_ALLOWED_HOSTS if allowed is None else allowed)}
    if not listed and any(is_internal(ipaddress.ip_address(address)) for address in addresses):
        raise InvalidSource(f"{host} is an internal address. An operator can allow it by adding {host} to {setting}.")
    return addresses


def is_internal(address: Address) -> bool:
    """Anything but a public unicast address, also when it is wrapped in an IPv6 address."""
    embedded = _embedded_ipv4(address)
    if embedded is not None:
        return is_internal(embedded)
    return not address.is_global or address.is_multicast


def _embedded_ipv4(address: Address) -> ipaddress.IPv4Address | None:
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return None
