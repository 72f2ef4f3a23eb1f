"""Which hosts webhooks may go to, and how: the operator's list of hosts, and https."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from adapters.webhooks.addresses import Address, AllowedHosts, is_local_name, is_name, literal
from reverie.errors import Rejected

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
    """Return the hosts of a list separated by commas, None for `*`: all. Raises Rejected for what is no host."""
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
