"""Where the client finds its broker and its server: arguments, else the environment, read once.

Servers of this user announce themselves on this machine, with the token of the local user. An entry is a file that only
this user can read, in a folder that only this user can write. It counts only while its server holds the lock on it,
which the kernel releases however the server ends: no token is sent to somebody else's program that has taken the port
since.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from reverie import contract
from reverie.checks import check_agent, check_workspace
from reverie.errors import Rejected

# The setting with the keys that sign payloads in the broker.
BROKER_KEY: Final = "broker_key"
MIN_KEY_CHARACTERS: Final = 32


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
    broker = broker or os.environ.get("REVERIE_BROKER") or None
    # With a broker named, several running servers are no error: calls that use only the broker need no server.
    found = None if url else _found_url(may_be_several=broker is not None)
    if not timeout_seconds > 0:
        raise Rejected(f"timeout_seconds is {timeout_seconds}; it must be more than 0", field="timeout_seconds")
    return ClientConfig(
        agent=check_agent(_named(agent, "REVERIE_AGENT", contract.DEFAULT_AGENT)),
        workspace=resolve_workspace(workspace),
        url=_checked_url(url or found or contract.DEFAULT_URL),
        url_given=url is not None,
        broker=check_broker(broker) if broker else None,
        token=_checked_token(token or os.environ.get("REVERIE_TOKEN") or ""),
        prefix=prefix or os.environ.get("REVERIE_BROKER_PREFIX") or contract.DEFAULT_PREFIX,
        timeout_seconds=timeout_seconds,
        agent_named=agent is not None or bool(os.environ.get("REVERIE_AGENT")),
        workspace_named=workspace is not None or bool(os.environ.get("REVERIE_WORKSPACE")),
        broker_key=os.environ.get("REVERIE_BROKER_KEY") or None,
    )


def _named(name: str | None, variable: str, default: str) -> str:
    """Return the name given, else that of the environment. An empty name is kept, and refused later by its check."""
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


def parse_keys(text: str | None) -> tuple[bytes, ...]:
    """Return the keys of a setting, separated by blanks: the first signs, all verify. Raises `Rejected`."""
    keys = (text or "").split()
    if any(len(key) < MIN_KEY_CHARACTERS for key in keys):
        raise Rejected(
            f"{BROKER_KEY} has a key of less than {MIN_KEY_CHARACTERS} characters:"
            " make one with `openssl rand -hex 32`",
            field=BROKER_KEY,
        )
    return tuple(key.encode() for key in keys)


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


def _checked_token(token: str) -> str | None:
    """Return a token without the blanks and line ends around it, as a file has them. Raises `Rejected` without it."""
    token = token.strip()
    if not token.isascii() or not token.isprintable():
        raise Rejected(
            "the token has a character that no token has: copy it again, as `reverie tokens create` printed it",
            field="token",
        )
    return token or None


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


_LOOPBACK: Final = ("127.0.0.1", "::1")
# It may resolve to either address: the entry of the running server tells which one.
_LOCAL_NAME: Final = "localhost"
LOCAL_HOSTS: Final = (*_LOOPBACK, _LOCAL_NAME)
_MAX_BYTES: Final = 4_096


class LocalServer(msgspec.Struct, frozen=True):
    """A server of this user on this machine. Its `pid` is for scripts, which cannot see the lock."""

    url: str
    token: str
    pid: int = 0


def local_server(url: str) -> LocalServer | None:
    """Return the server of this user that runs at a loopback URL, or None; takes about 30 microseconds."""
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname not in LOCAL_HOSTS:
        return None
    hosts = _LOOPBACK if parts.hostname == _LOCAL_NAME else (parts.hostname,)
    found = (_read(entry_path(host, parts.port or 80)) for host in hosts)
    return next((server for server in found if server is not None), None)


def _found_url(*, may_be_several: bool) -> str | None:
    """Return the URL of this user's running server: the one at the default address, or else the only one.

    None if no server runs. If several run elsewhere, raises `Rejected`, or returns None with `may_be_several`.
    """
    try:
        paths = sorted((state_folder() / "servers").iterdir())
    except OSError:
        return None
    urls = [server.url for path in paths if (server := _read(path)) is not None]
    if len(urls) > 1 and contract.DEFAULT_URL not in urls and not may_be_several:
        raise Rejected(f"several servers run: name one by url= or REVERIE_URL: {', '.join(urls)}", field="url")
    return urls[0] if len(urls) == 1 else None


def entry_path(host: str, port: int) -> Path:
    """Return the path of the entry of a server that listens on a loopback address."""
    return state_folder() / "servers" / f"{host.replace(':', '_')}-{port}.json"


def is_private(status: os.stat_result, *, readable: bool = False) -> bool:
    """Return whether a file or folder belongs to this user, and nobody else can write it; nor read it, by default."""
    others = stat.S_IWGRP | stat.S_IWOTH if readable else stat.S_IRWXG | stat.S_IRWXO
    return status.st_uid == os.geteuid() and not status.st_mode & others


def _read(path: Path) -> LocalServer | None:
    try:
        import fcntl
    except ImportError:  # Windows, where no server runs
        return None
    try:
        if not is_private(path.parent.stat(), readable=True):
            return None
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not is_private(os.fstat(descriptor)):
            return None
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:  # its server runs
        return _decoded(os.pread(descriptor, _MAX_BYTES, 0))
    except OSError:  # a file system without locks
        return None
    finally:
        os.close(descriptor)
    return None


def _decoded(content: bytes) -> LocalServer | None:
    try:
        return msgspec.json.decode(content, type=LocalServer)
    except (ValueError, RecursionError):  # being written, or damaged
        return None
