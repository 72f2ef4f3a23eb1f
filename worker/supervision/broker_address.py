"""The address of the embedded broker: a unix socket in the data folder.

Every process reads it with its settings, so this module imports only the standard library.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from pathlib import Path
from urllib.parse import quote

from reverie.errors import Unavailable

# sizeof(sockaddr_un.sun_path) without the final NUL of valkey-server.
_SOCKET_PATH_LIMIT_BYTES = (104 if sys.platform == "darwin" else 108) - 1
# Not tempfile.gettempdir(): it follows TMPDIR, which differs between the shells and services of one user, but every
# process must find the same socket. On macOS it also uses up half of the limit.
_SHORT_SOCKET_FOLDER = Path("/tmp")  # noqa: S108 - the folder made in it is checked to be private


def embedded_socket_path(data_dir: Path) -> Path:
    """Return the path of the broker's socket: in the data folder, or a short one in /tmp if that is too long.

    The same data folder always gives the same path. Raises Unavailable: when the folder of the short path is not owned
    by this user.
    """
    folder = data_dir.resolve()
    path = folder / "run" / "broker.sock"
    if len(os.fsencode(path)) <= _SOCKET_PATH_LIMIT_BYTES:
        return path
    short_folder = _SHORT_SOCKET_FOLDER / f"reverie-{os.geteuid()}"
    _refuse_foreign_folder(short_folder)
    return short_folder / f"{hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]}.sock"


def embedded_broker_url(data_dir: Path) -> str:
    """Return the broker's URL for redis-py: `unix://<path>?db=0`."""
    return f"unix://{quote(os.fsencode(embedded_socket_path(data_dir)))}?db=0"


def _refuse_foreign_folder(folder: Path) -> None:
    """Raise Unavailable if `folder` exists but another user may control it."""
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise Unavailable(
            f"{folder} must be a folder that you own and only you can enter: remove it, or choose a data folder"
            " with a shorter path"
        )
