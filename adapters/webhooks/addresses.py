"""The addresses that webhooks may go to: global ones, and those that the operator allows by name, address or network.

The URL of a webhook comes from an agent, and Reverie runs inside the operator's network. So every address that is not
clearly global is refused: loopback, private, link-local, shared (CGNAT), multicast and reserved addresses, and IPv6
addresses that embed such an IPv4 address.
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

_MAX_NAME_CHARACTERS: Final = 253
# A DNS label, also with the underscores that Compose and others use in service names.
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
# Text that resolvers read as the last part of an IPv4 address: `https://url.spec.whatwg.org/#ends-in-a-number-checker`.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")

# Refused in addition to the addresses that `ipaddress` considers not global, whose list differs between Python patches.
_NOT_GLOBAL: Final[tuple[Network, ...]] = (
    IPv4Network("0.0.0.0/8"),
    IPv4Network("100.64.0.0/10"),  # shared address space (CGNAT), RFC 6598; one cloud has its metadata there
    IPv4Network("168.63.129.16/32"),  # host agent of a cloud: a global address that is served internally
    IPv4Network("192.0.0.0/24"),
    IPv4Network("192.88.99.0/24"),  # 6to4 relays, withdrawn by RFC 7526
    IPv4Network("198.18.0.0/15"),
    IPv4Network("224.0.0.0/3"),  # multicast and reserved
    IPv6Network("2001::/23"),  # Teredo and other protocol assignments
    IPv6Network("2001:db8::/32"),
    IPv6Network("3fff::/20"),
)
# All addresses assigned for global use so far (RFC 4291, section 2.4); NAT64 is outside of it and handled separately.
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")
_NAT64: Final = IPv6Network("64:ff9b::/96")
# Metadata services that hand out credentials. An allowed name does not allow them, since names can change addresses.
_NEVER_BY_NAME: Final[tuple[Network, ...]] = (
    IPv4Network("169.254.0.0/16"),
    IPv4Network("100.100.100.200/32"),
    IPv4Network("168.63.129.16/32"),
    IPv6Network("fe80::/10"),
    IPv6Network("fd00:ec2::/32"),
    IPv6Network("fd20:ce::254/128"),
    IPv6Network("fd00:c1::a9fe:a9fe/128"),
    IPv6Network("fd00:42::42/128"),
)
# Names that resolve to such an address inside of a cloud.
_METADATA_NAMES: Final = frozenset(
    {"metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal"}
)


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """Hosts and networks that the operator allows although they are not global."""

    everything: bool = False
    names: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def parse(cls, entries: Sequence[str]) -> AllowedHosts:
        """Parse names, addresses, networks (`10.0.0.0/8`) and `*` for everything. Raises Rejected for anything else."""
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
                    f"{SETTING} has {entry!r:.80}, which is not a host name, address, network (10.0.0.0/8) or *:"
                    " give hosts alone, without scheme, port or path",
                    field=SETTING,
                )
        return cls(any(text == "*" for _, text in texts), frozenset(names), tuple(networks))

    def allows(self, host: str, address: Address) -> bool:
        """Return whether `host` may be reached at `address`."""
        inner = embedded(address) or address
        metadata = [network for network in _NEVER_BY_NAME if _within(network, address, inner)]
        if metadata or (host in _METADATA_NAMES and host not in self.names):
            # Neither `*` nor a wide network allows them, only the address itself, or a network of nothing else.
            return any(
                _within(own, address, inner)
                and (own.prefixlen == own.max_prefixlen or any(_is_part(own, network) for network in metadata))
                for own in self.networks
            )
        if self.everything or any(_within(network, address, inner) for network in self.networks):
            return True
        return host in self.names or is_global(address)

    def names_explicitly(self, host: str) -> bool:
        """Return whether an entry other than `*` allows a host by its name or its address."""
        address = literal(host)
        return host in self.names or (
            address is not None and any(_within(network, address) for network in self.networks)
        )


def embedded(address: Address) -> IPv4Address | None:
    """Return the IPv4 address embedded in an IPv6 address: mapped, NAT64 (RFC 6052) or 6to4 (RFC 3056), or None."""
    if isinstance(address, IPv4Address):
        return None
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


def is_global(address: Address) -> bool:
    """Return whether an address is globally reachable, judged by its number."""
    inner = embedded(address)
    if inner is not None:
        return is_global(inner)
    if isinstance(address, IPv6Address) and address not in _GLOBAL_UNICAST:
        return False
    return address.is_global and not any(_within(network, address) for network in _NOT_GLOBAL)


def is_local_name(host: str) -> bool:
    """Return whether a name means this machine regardless of the resolver (RFC 6761, section 6.3)."""
    return host == "localhost" or host.endswith(".localhost")


def is_name(host: str) -> bool:
    """Return whether a text is a host name in lower case, without a trailing dot, and cannot be an address."""
    labels = host.split(".")
    return (
        len(host) <= _MAX_NAME_CHARACTERS
        and all(_LABEL.fullmatch(label) for label in labels)
        and not _NUMBER.fullmatch(labels[-1])
    )


def literal(host: str) -> Address | None:
    """Return the address that `host` is in its usual notation (IPv6 without brackets), or None."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def _network(text: str) -> Network | None:
    try:
        return ip_network(text)
    except ValueError:
        return None


def _is_part(network: Network, of: Network) -> bool:
    if isinstance(network, IPv4Network):
        return isinstance(of, IPv4Network) and network.subnet_of(of)
    return isinstance(of, IPv6Network) and network.subnet_of(of)


def _within(network: Network, *addresses: Address) -> bool:
    return any(address.version == network.version and address in network for address in addresses)
