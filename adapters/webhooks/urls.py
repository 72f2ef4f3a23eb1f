"""Parse a webhook's URL once: the parts that are checked are those that are used, so two parsers cannot disagree."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from adapters.webhooks.addresses import SETTING, Address, AllowedHosts, is_local_name, is_name, literal
from adapters.webhooks.policy import WebhookPolicy
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


def check_webhook_url(url: str, allow: AllowedHosts | WebhookPolicy, *, field: str = "url") -> WebhookUrl:
    """Parse a URL and check that it is allowed, without resolving names. `AllowedHosts` alone allows http, too.

    Raises Rejected, naming `field`, for anything but a http or https URL and for what is not allowed.
    """
    policy = allow if isinstance(allow, WebhookPolicy) else WebhookPolicy(allow, https_only=False)
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
