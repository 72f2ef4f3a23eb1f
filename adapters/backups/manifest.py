"""The manifest of a backup: its contents, and the blocks and hashes from which they are restored."""

from __future__ import annotations

import hashlib
from datetime import datetime
from pathlib import PurePosixPath
from typing import Annotated, Final, Literal

import msgspec

from reverie.checks import is_workspace_name
from reverie.errors import StoreUnusable

# The newest format of manifests that this code reads. A change that older code would misread raises it.
FORMAT: Final = 1
# A manifest has 64 bytes for each block: this is enough for a backup of a terabyte.
MAX_MANIFEST_BYTES: Final = 512 * 1024 * 1024

# The first parts of the paths that a backup can have, in the data folder or in the folder of a workspace.
_KNOWN: Final = (
    "account.db",
    "memory.db",
    "git",
    "tombstones",
    "inbox",
    "settings.json",
    "installation.key",
    "webhook-secrets.json",
)

# With its offset from UTC: times without one cannot be compared with others.
BackupTime = Annotated[datetime, msgspec.Meta(tz=True)]
# A database; a folder as a tar file; or one file.
FileKind = Literal["database", "folder", "file"]


class SourceStamp(msgspec.Struct, frozen=True, kw_only=True):
    """Inode, sizes and times (nanoseconds) of a database and its log when it was copied.

    An equal stamp that is `settled` proves that nothing was written since.
    """

    inode: int
    size: int
    modified_ns: int
    log_size: int
    log_modified_ns: int
    settled: bool


class StoreState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a database when it was copied: schema versions, numbers of rows, and the newest message."""

    name: str
    schema: dict[str, str]
    counts: dict[str, int]
    newest_message: str
    highest_row: int
    stamp: SourceStamp


class BackupFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the data folder: its path in it, size in bytes, SHA-256, and the addresses of its blocks."""

    path: str
    kind: FileKind
    bytes: int
    sha256: str
    blocks: tuple[str, ...]
    store: StoreState | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One backup. `failed` are the stores that could not be copied, with the reason: it is then incomplete.

    `queued` counts the accepted messages that were still in the broker, by workspace. `new_blocks` and `new_bytes`
    count what this backup added to the repository.
    """

    format: int = FORMAT
    id: str
    number: int
    repository: str
    product: str
    created_at: BackupTime
    finished_at: BackupTime
    files: tuple[BackupFile, ...]
    failed: dict[str, str]
    queued: dict[str, int]
    new_blocks: int
    new_bytes: int

    @property
    def total_bytes(self) -> int:
        """The size of all files as they are restored."""
        return sum(file.bytes for file in self.files)

    @property
    def stores(self) -> dict[str, BackupFile]:
        """The databases, by the name of their store."""
        return {file.store.name: file for file in self.files if file.store is not None}


class _Envelope(msgspec.Struct, frozen=True):
    sha256: str
    manifest: msgspec.Raw


class _Version(msgspec.Struct, frozen=True):
    format: int


def encode_manifest(manifest: Manifest) -> bytes:
    """Return a manifest as JSON, together with its own hash."""
    body = msgspec.json.encode(manifest)
    return msgspec.json.encode(_Envelope(hashlib.sha256(body).hexdigest(), msgspec.Raw(body)))


def decode_manifest(content: bytes, name: str) -> Manifest:
    """Return the manifest that `encode_manifest` made. Raises `StoreUnusable` if it is damaged or too new."""
    try:
        envelope = msgspec.json.decode(content, type=_Envelope)
        body = bytes(envelope.manifest)
        if hashlib.sha256(body).hexdigest() != envelope.sha256:
            raise StoreUnusable(f"{name} was changed or is damaged: its hash differs")
        version = msgspec.json.decode(body, type=_Version).format
        if version > FORMAT:
            raise StoreUnusable(f"{name} has format {version}, newer than {FORMAT}: upgrade Reverie")
        manifest = msgspec.json.decode(body, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StoreUnusable(
            f"{name} of the backup is damaged ({error}): restore another backup, or take this file from a copy"
        ) from error
    for file in manifest.files:
        _check_path(file.path, name)
    return manifest


def _check_path(path: str, name: str) -> None:
    """Raise `StoreUnusable` for a path that a backup cannot contain, such as one that leaves the data folder."""
    parts = PurePosixPath(path).parts
    inside = parts[2:] if parts[:1] == ("workspaces",) and len(parts) > 2 and is_workspace_name(parts[1]) else parts
    plain = all(part not in ("", ".", "..") and "\\" not in part and "\0" not in part for part in parts)
    known = bool(inside) and inside[0] in _KNOWN
    if not (plain and known and not path.startswith("/") and len(inside) <= 2):
        raise StoreUnusable(f"{name} contains the path {path!r}, which no backup has: it was changed or is damaged")
