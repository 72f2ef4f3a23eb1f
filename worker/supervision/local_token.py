"""The token of the user who runs a server: kept in the data folder, and announced to clients of the same user.

The command line reads the token from the data folder. The client, which knows only a URL, finds it in the user's state
folder, where a running server announces itself: see `reverie.config`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from adapters.kept_secrets import create_once
from memory.trust.token_texts import is_well_formed, new_token
from reverie.config import LocalServer, entry_path, is_private
from reverie.errors import Rejected, Unavailable
from storage.private_files import private_folder

NAME: Final = "local-token"
# A client that checks whether the server runs holds the lock for some microseconds.
_LOCK_ATTEMPTS: Final = 100
_LOCK_PAUSE_SECONDS: Final = 0.01


def local_token(data: Path) -> str:
    """Return the token of a data folder; make it if there is none. Raises `Rejected` for a file that is not private."""
    known = read_local_token(data)
    if known is not None:
        return known
    path = data / NAME
    try:
        private_folder(data)
        create_once(path, f"{new_token()}\n".encode())
    except OSError as error:
        raise Unavailable(f"the token file {path} cannot be written ({error.strerror}): check its folder") from error
    made = read_local_token(data)
    if made is None:
        raise _unusable(path, "cannot be read")
    return made


def read_local_token(data: Path) -> str | None:
    """Return the token of a data folder, or None if it has none that this user may read. Raises as `local_token`."""
    path = data / NAME
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return None
    except OSError as error:
        raise _unusable(path, f"cannot be read ({error.strerror})") from error
    with os.fdopen(descriptor, encoding="ascii", errors="replace") as file:
        if not is_private(os.fstat(descriptor)):
            raise _unusable(path, "can be read by others, or belongs to another user")
        token = file.read(1_024).strip()
    if not is_well_formed(token):
        raise _unusable(path, "holds no token")
    return token


@contextlib.contextmanager
def announced_to_clients(address: tuple[str, int], url: str, token: str) -> Iterator[bool]:
    """Announce a server to clients of this user while it runs, and yield whether that was possible.

    If the state folder cannot be written, the server runs anyway, and users have to give clients the token.
    """
    with contextlib.ExitStack() as closing:
        done = False
        with contextlib.suppress(OSError):
            path = entry_path(*address)
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.parent.chmod(0o700)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            closing.callback(os.close, descriptor)
            if not is_private(os.fstat(descriptor)):
                os.fchmod(descriptor, 0o600)
            _lock(descriptor)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, msgspec.json.encode(LocalServer(url, token, os.getpid())), 0)
            closing.callback(os.ftruncate, descriptor, 0)
            done = True
        yield done


def _lock(descriptor: int) -> None:
    for attempts_left in range(_LOCK_ATTEMPTS - 1, -1, -1):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not attempts_left:
                raise
        time.sleep(_LOCK_PAUSE_SECONDS)


def _unusable(path: Path, what: str) -> Rejected:
    return Rejected(f"the token file {path} {what}: remove it, and the server makes a new one", field="token")
