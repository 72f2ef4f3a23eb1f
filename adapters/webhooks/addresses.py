"""Which addresses a webhook may go to: global ones, and what the operator allowed by name, address or network.

A webhook's URL is an agent's word, and Reverie stands inside the operator's network. So whatever is not plainly global
is refused: loopback, private, link-local, shared (CGNAT), multicast and reserved addresses, and IPv6 addresses that
carry such an IPv4 address within them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

from reverie.errors import Rejected

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

SETTING: Final = "webhook_allow_private"

_LONGEST_NAME_CHARACTERS: Final = 253
# As DNS has it, and with the underscores that Compose and others give to services.
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
# What resolvers read as the last part of an IPv4 address: `https://url.spec.whatwg.org/#ends-in-a-number-checker`.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")

# Refused beside what `ipaddress` takes for not global: its registry differs from one patch of Python to the next.
_NOT_GLOBAL: Final[tuple[Network, ...]] = (
    IPv4Network("0.0.0.0/8"),
    IPv4Network("100.64.0.0/10"),  # shared address space (CGNAT), RFC 6598; one cloud has its metadata there
    IPv4Network("168.63.129.16/32"),  # a cloud's agent of its hosts: a global address that is answered within
    IPv4Network("192.0.0.0/24"),
    IPv4Network("192.88.99.0/24"),  # 6to4 relays, withdrawn by RFC 7526
    IPv4Network("198.18.0.0/15"),
    IPv4Network("224.0.0.0/3"),  # multicast and reserved
    IPv6Network("2001::/23"),  # Teredo and other protocol assignments
    IPv6Network("2001:db8::/32"),
    IPv6Network("3fff::/20"),
)
# All that has been given out for global use so far (RFC 4291, section 2.4); NAT64 lies outside and is looked into.
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
_NAT64: Final = IPv6Network("64:ff9b::/96")
# Who answers here hands out an instance's credentials. A name in the list does not open it: names change their minds.
_NEVER_BY_NAME: Final[tuple[Network, ...]] = (
    IPv4Network("169.254.0.0/16"),
    IPv4Network("100.100.100.200/32"),
    IPv4Network("168.63.129.16/32"),
    IPv6Network("fe80::/10"),
    IPv6Network("fd00:ec2::254/128"),
)


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """What the operator allows although it is not global."""

    everything: bool = False
    names: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def parse(cls, entries: Sequence[str]) -> AllowedHosts:
        """Read names, addresses, networks (`10.0.0.0/8`) and `*` for everything. Raises Rejected for any other."""
        names: set[str] = set()
        networks: list[Network] = []
        texts = [(entry, entry.strip().lower().removesuffix(".")) for entry in entries]
        for entry, text in texts:
            network = _network(text)
            if network is not None:
                networks.append(network)
            elif is_name(text):
                names.add(text)
            elif text != "*":
                raise Rejected(
                    f"{SETTING} has {entry!r:.80}, which is no host name, address, network (10.0.0.0/8) or *:"
                    " give hosts alone, without scheme, port or path",
                    field=SETTING,
                )
        return cls(any(text == "*" for _, text in texts), frozenset(names), tuple(networks))

    def allows(self, host: str, address: Address) -> bool:
        """Whether `host` may be reached at `address`."""
        inner = embedded(address) or address
        if self.everything or any(_within(network, address, inner) for network in self.networks):
            return True
        if any(_within(network, address, inner) for network in _NEVER_BY_NAME):
            return False
        return host in self.names or is_global(address)


def embedded(address: Address) -> IPv4Address | None:
    """The IPv4 address that an IPv6 address leads to in the end: mapped, NAT64 (RFC 6052) or 6to4 (RFC 3056)."""
    if isinstance(address, IPv4Address):
        return None
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


def is_global(address: Address) -> bool:
    """Whether this address is somewhere in the public internet, as far as its number tells."""
    inner = embedded(address)
    if inner is not None:
        return is_global(inner)
    if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return False
    return address.is_global and not any(_within(network, address) for network in _NOT_GLOBAL)


def is_local_name(host: str) -> bool:
    """Whether the name means this machine, whatever a resolver says (RFC 6761, section 6.3)."""
    return host == "localhost" or host.endswith(".localhost")


def is_name(host: str) -> bool:
    """Whether this is a host name in lower case and without a dot at its end, and can be nothing but a name."""
    labels = host.split(".")
    return (
        len(host) <= _LONGEST_NAME_CHARACTERS
        and all(_LABEL.fullmatch(label) for label in labels)
        and not _NUMBER.fullmatch(labels[-1])
    )


def literal(host: str) -> Address | None:
    """The address that `host` is in its usual spelling, or None. An IPv6 address stands here without brackets."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def _network(text: str) -> Network | None:
    try:
        return ip_network(text)
    except ValueError:
        return None


def _within(network: Network, *addresses: Address) -> bool:
    return any(address.version == network.version and address in network for address in addresses)
