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

MAX_URL_CHARACTERS: Final = 2048

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_THIS_MACHINE: Final = (IPv4Address("127.0.0.1"), IPv6Address("::1"))


@dataclass(frozen=True, slots=True)
class WebhookUrl:
    """The parts of a URL. `host` is a name, or an address without brackets."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def address(self) -> Address | None:
        """Return the address in the URL, or None if it has a name that must be resolved."""
        return literal(self.host)

    @property
    def authority(self) -> str:
        """Return host and port for the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> str:
        """Return the URL without path and query, which may contain a secret; used in errors."""
        return f"{self.scheme}://{self.authority}"


def check_webhook_url(url: str, policy: WebhookPolicy, *, field: str = "url") -> WebhookUrl:
    """Parse a URL and check that it is allowed, without resolving names.

    Raises Rejected, naming `field`, unless the URL is http or https and its address is allowed.
    """
    try:
        found = _parsed(url)
        _check_host(found.host)
    except ValueError as error:
        raise Rejected(f"{field} is not the URL of a webhook: {error}", field=field) from error
    candidates = _THIS_MACHINE if is_local_name(found.host) else [found.address] if found.address else []
    if candidates and not any(policy.private.allows(found.host, address) for address in candidates):
        raise Rejected(f"{field} leads to {found.host}: {not_allowed(found.host)}", field=field)
    policy.check(found.scheme, found.host, field=field)
    return found


def not_allowed(host: str) -> str:
    """Return why an address was refused and what to do."""
    return f"that is not a public address; if the receiver is yours, let the operator add {host} to {SETTING}"


def _parsed(url: str) -> WebhookUrl:
    """Parse a URL. Raises ValueError with the cause, but never with the URL, which may contain a secret."""
    import httpx2

    if len(url) > MAX_URL_CHARACTERS:
        raise ValueError(f"it has {len(url):,} characters; at most {MAX_URL_CHARACTERS:,} are allowed")
    if not all(character.isprintable() and not character.isspace() for character in url):
        raise ValueError("it contains a blank or a control character")
    try:
        parts = httpx2.URL(url)
    except (httpx2.InvalidURL, ValueError) as error:
        raise ValueError("it cannot be read: check host and port") from error
    if parts.scheme not in _DEFAULT_PORTS:
        raise ValueError("it must begin with http:// or https://")
    if parts.userinfo:
        raise ValueError("it must not contain a user name or a password: messages are signed instead")
    port = parts.port if parts.port is not None else _DEFAULT_PORTS[parts.scheme]
    if not 1 <= port <= 65535:
        raise ValueError(f"its port is {port}; it must be from 1 to 65535")
    host = parts.raw_host.decode("ascii").lower().removesuffix(".")
    return WebhookUrl(parts.scheme, host, port, parts.raw_path.decode("ascii"))


def _check_host(host: str) -> None:
    """Raise ValueError unless the host is a name or an address in its usual notation.

    Resolvers read 2130706433, 0x7f.1 and 0177.0.0.1 as 127.0.0.1; such notations only serve to hide an address.
    """
    if not host:
        raise ValueError("it names no host")
    if "%" in host:
        raise ValueError("its host has a % in it: zones of IPv6 addresses and escapes are not supported")
    if literal(host) is None and not is_name(host):
        raise ValueError(
            "its host is neither a name nor an address in the usual form,"
            " as in agent.example, 192.0.2.7 or [2001:db8::7]"
        )


HOSTS_SETTING: Final = "webhook_hosts"
HTTP_SETTING: Final = "webhook_allow_http"


@dataclass(frozen=True, slots=True)
class WebhookPolicy:
    """What the operator allows. Addresses that are not global need `private` as well, whatever `hosts` says.

    `hosts` has names, addresses, and patterns such as `*.example.org`; None allows every host.
    """

    private: AllowedHosts
    hosts: frozenset[str] | None = None
    https_only: bool = True

    def check(self, scheme: str, host: str, *, field: str) -> None:
        """Raise Rejected, naming `field`, for a host that is not on the list, and for http beyond this machine."""
        if not (self.hosts is None or self._is_listed(host)):
            raise Rejected(
                f"{field} leads to {host}, which the operator does not allow: let them add it to {HOSTS_SETTING}",
                field=field,
            )
        if self.https_only and scheme != "https" and not _is_this_machine(host):
            raise Rejected(
                f"{field} begins with http://: what is sent could be read on the way. Use https://, or let the operator"
                f" set {HTTP_SETTING}",
                field=field,
            )

    def _is_listed(self, host: str) -> bool:
        assert self.hosts is not None
        if host in self.hosts or self.private.names_explicitly(host):
            return True
        parents = (host[place + 1 :] for place, character in enumerate(host) if character == ".")
        return literal(host) is None and any(f"*.{parent}" in self.hosts for parent in parents)


def parse_hosts(text: str) -> frozenset[str] | None:
    """Return the hosts of a list separated by commas, None for `*`: all. Raises Rejected for an invalid host."""
    entries = [entry.strip().lower().removesuffix(".") for entry in text.split(",") if entry.strip()]
    for entry in entries:
        if entry != "*" and literal(entry) is None and not is_name(entry.removeprefix("*.")):
            raise Rejected(
                f"{HOSTS_SETTING} has {entry!r:.80}, which is not a host name, *.name, address or *: give hosts alone,"
                " without scheme, port or path",
                field=HOSTS_SETTING,
            )
    return None if "*" in entries else frozenset(entries)


def policy_of(*, private: Sequence[str], hosts: str, allow_http: bool) -> WebhookPolicy:
    """Return the policy of the settings. Raises Rejected for an invalid one."""
    return WebhookPolicy(AllowedHosts.parse(private), parse_hosts(hosts), https_only=not allow_http)


def _is_this_machine(host: str) -> bool:
    """Return whether a host is this machine whatever a resolver says: nobody can listen on the way."""
    address: Address | None = literal(host)
    if address is None:
        return is_local_name(host)
    mapped = getattr(address, "ipv4_mapped", None) or address
    return bool(mapped.is_loopback)


Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

SETTING: Final = "webhook_allow_private"

_MAX_NAME_CHARACTERS: Final = 253
# A DNS label, also with the underscores that Compose and others use in service names.
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
# Text that resolvers read as the last part of an IPv4 address: `https://url.spec.whatwg.org/#ends-in-a-number-checker`.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")

# Refused in addition to what `ipaddress` considers not global: its list differs between patch releases of Python.
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
            # `*` and wide networks do not allow them: only the address itself does, or a network of such addresses.
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
