"""The file `<data>/run/server.json`, in which a server says where it answers.

It counts only while the server holds the lock on it, which the kernel releases however the server ends. With it, a
command finds the server of a data folder, even if no supervisor of this host has started it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec

from reverie.errors import Unavailable


class ServerFile(msgspec.Struct, frozen=True):
    """The address of a server, its version, and the workspace of requests that name none."""

    url: str
    version: str
    workspace: str


@contextlib.contextmanager
def announced(data_dir: Path, content: ServerFile) -> Iterator[None]:
    """Announce a server while it runs. A second server on the same data folder is not announced.

    If the folder cannot be written, the server runs anyway.
    """
    with contextlib.ExitStack() as closing:
        with contextlib.suppress(OSError):
            path = _path(data_dir)
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            closing.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, msgspec.json.encode(content), 0)
        yield


def running_server(data_dir: Path) -> ServerFile | None:
    """Return where the server on a data folder answers, or None if none is running.

    Raises `Unavailable` when one runs but its file is damaged: waiting for it would be useless.
    """
    try:
        descriptor = os.open(_path(data_dir), os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _decoded(os.pread(descriptor, 65_536, 0), data_dir)
    finally:
        os.close(descriptor)
    return None


def _decoded(content: bytes, data_dir: Path) -> ServerFile | None:
    """Return the content of the file; None while it is empty, for a moment during the server's start."""
    if not content:
        return None
    try:
        return msgspec.json.decode(content, type=ServerFile)
    except (ValueError, RecursionError) as error:
        raise Unavailable(
            f"{_path(data_dir)} is damaged ({error}), so the server on {data_dir} cannot be found:"
            " restart Reverie, which writes the file anew"
        ) from error


def local_url(host: str, port: int) -> str:
    """Return the URL at which this host reaches a server, even one that listens on all addresses."""
    host = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104 - compared, not bound
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def listen(host: str, port: int, *, advice: str, backlog: int | None = None) -> socket.socket:
    """Return a socket that listens. Raises `Unavailable` with the advice for an address that is taken or unknown."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=backlog)
    except OSError as error:
        # The text of create_server repeats the address; the error of an unknown host name has no errno of the system.
        reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        raise Unavailable(f"cannot listen on {host}:{port} ({reason}): is another Reverie running? {advice}") from error


def refuse_taken_port(host: str, port: int) -> None:
    """Raise `Unavailable` before anything starts when a port is taken by another server."""
    listen(host, port, advice="use another port with `reverie up --port N`").close()


def _path(data_dir: Path) -> Path:
    return data_dir / "run" / "server.json"
