"""Where servers of this user announce themselves on this machine: their URL, and the token of the local user.

An entry is a file that only this user can read, in a folder that only this user can write. It counts only while its
server holds the lock on it, which the kernel releases however the server ends: no token is sent to somebody else's
program that has taken the port since.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from reverie.config import state_folder

_LOOPBACK: Final = ("127.0.0.1", "::1")
# Names that may resolve to either: the server that was announced says which one it is.
_LOCAL_NAME: Final = "localhost"
_MAX_BYTES: Final = 4_096


class LocalServer(msgspec.Struct, frozen=True):
    """A server of this user on this machine. Its `pid` is for scripts, which cannot see the lock."""

    url: str
    token: str
    pid: int = 0


def is_loopback_url(url: str) -> bool:
    """Return whether a URL names this machine."""
    return urlsplit(url).hostname in (*_LOOPBACK, _LOCAL_NAME)


def local_server(url: str) -> LocalServer | None:
    """Return the server of this user that runs at a loopback URL, or None; takes about 30 microseconds."""
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname not in (*_LOOPBACK, _LOCAL_NAME):
        return None
    hosts = _LOOPBACK if parts.hostname == _LOCAL_NAME else (parts.hostname,)
    found = (_read(entry_path(host, parts.port or 80)) for host in hosts)
    return next((server for server in found if server is not None), None)


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
