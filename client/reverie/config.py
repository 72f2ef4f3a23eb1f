"""Where the client finds its broker and its server: arguments, else the environment, read once."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from reverie import contract
from reverie.checks import check_agent, check_workspace
from reverie.errors import Rejected


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """The configuration of a client. `url_given`, and the like, are False if the value is the default."""

    agent: str
    workspace: str
    url: str
    url_given: bool
    broker: str | None = field(repr=False)
    token: str | None = field(repr=False)
    prefix: str
    timeout_seconds: float
    agent_named: bool = True
    workspace_named: bool = True
    # Keys that sign payloads in the broker, separated by blanks.
    broker_key: str | None = field(default=None, repr=False)
    # The end user that all calls are limited to, as the header X-Reverie-User has it.
    user: str | None = None


def resolve_config(
    *,
    agent: str | None,
    url: str | None,
    broker: str | None,
    token: str | None,
    workspace: str | None,
    prefix: str | None,
    timeout_seconds: float,
) -> ClientConfig:
    """Return the configuration from arguments and, for those left out, the environment. Raises `Rejected`."""
    url = url or os.environ.get("REVERIE_URL") or None
    if not timeout_seconds > 0:
        raise Rejected(f"timeout_seconds is {timeout_seconds}; it must be more than 0", field="timeout_seconds")
    return ClientConfig(
        agent=check_agent(_named(agent, "REVERIE_AGENT", contract.DEFAULT_AGENT)),
        workspace=resolve_workspace(workspace),
        url=_checked_url(url or contract.DEFAULT_URL),
        url_given=url is not None,
        broker=check_broker(known) if (known := broker or os.environ.get("REVERIE_BROKER")) else None,
        token=token or os.environ.get("REVERIE_TOKEN") or None,
        prefix=prefix or os.environ.get("REVERIE_BROKER_PREFIX") or contract.DEFAULT_PREFIX,
        timeout_seconds=timeout_seconds,
        agent_named=agent is not None or bool(os.environ.get("REVERIE_AGENT")),
        workspace_named=workspace is not None or bool(os.environ.get("REVERIE_WORKSPACE")),
        broker_key=os.environ.get("REVERIE_BROKER_KEY") or None,
    )


def _named(name: str | None, variable: str, default: str) -> str:
    """Return a name, else that of the environment. An empty one is not left out: it must not mean somebody else."""
    return name if name is not None else os.environ.get(variable) or default


def resolve_workspace(workspace: str | None) -> str:
    """Return the name of the workspace, else that of the environment. Raises `Rejected`."""
    return check_workspace(_named(workspace, "REVERIE_WORKSPACE", contract.DEFAULT_WORKSPACE))


def resolve_broker(broker: str | None, prefix: str | None) -> tuple[str, str]:
    """Return the broker's URL and key prefix for an agent's own workers. Raises `Rejected`."""
    known = broker or os.environ.get("REVERIE_BROKER")
    if not known:
        raise Rejected(
            "name the broker that Reverie sends tasks to: AgentWorker(broker=...), or set REVERIE_BROKER; "
            "`reverie broker-url` prints it",
            field="broker",
        )
    if prefix is None:
        prefix = os.environ.get("REVERIE_BROKER_PREFIX") or contract.DEFAULT_PREFIX
    return check_broker(known), prefix


def state_folder() -> Path:
    """Return the folder in which running servers of this user announce themselves: `$XDG_STATE_HOME/reverie`."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")  # noqa: PTH111 - never raises
    return Path(state) / "reverie"


def resolve_worker_key(key: str | None) -> str | None:
    """Return the key of an agent's workers, else that of the environment, or None: it is fetched from the server."""
    return key or os.environ.get("REVERIE_WORKER_KEY") or None


def without_password(url: str) -> str:
    """Return a URL without user, password and options, so that it can be shown."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('?')[0].rpartition('@')[2]}"


def _checked_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Rejected(f"{url!r} is not the URL of a server, such as {contract.DEFAULT_URL}", field="url")
    return url.rstrip("/")


def check_broker(url: str) -> str:
    """Return the URL of a broker. Raises `Rejected`, without quoting the URL: it may contain a password."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("redis", "rediss", "unix") and parts.port != 0
    except ValueError:  # the port is not a number or out of range
        valid = False
    if not valid:
        raise Rejected(
            "the broker's URL must begin with redis://, rediss:// or unix:// and have a port from 1 to 65535, as in redis://127.0.0.1:6379/0",
            field="broker",
        )
    return url
