"""Makes one backup of a data folder that is in use: databases, memory files, queued messages, tombstones, settings.

The order makes it complete. The queued messages are read first, then the databases: a message accepted before the
backup is in one of the two, or in both, where its id makes the second harmless. Tombstones come last, so that none is
missing for something that the backup holds.
"""

from __future__ import annotations

import tempfile
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from adapters.backups.manifest import BackupFile, FileKind, Manifest, SourceStamp, StoreState
from adapters.backups.repository import Repository
from adapters.broker.inbox import WorkerInbox
from adapters.kept_secrets import KEY_FILE
from adapters.workspace_git import GitFolders
from memory.conversion import convert
from memory.secrets import looks_secret
from reverie.clock import from_micros
from reverie.contract import ACCOUNT_STORE
from reverie.errors import NotFound, Permanent, StoreUnavailable
from storage.lifecycle.copying import copied
from storage.migrations import Kind
from storage.stores import Stores

TOMBSTONES: Final = "tombstones"
SETTINGS: Final = "settings.json"
INBOX: Final = "inbox"

OnPages = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class BackupSource:
    """The source of a backup: the data folder, the inbox (None without a broker), and the settings without secrets.

    Copies are made in the folder `scratch`, on whose disk the largest database must have room.
    """

    data: Path
    inbox: WorkerInbox | None
    settings: Mapping[str, Any]
    scratch: Path
    product: str
    now: Callable[[], int]
    # Whether the keys of the installation are put even into a backup that is not encrypted.
    with_keys: bool = False


@dataclass(slots=True)
class _Draft:
    """The files of the backup that is being made."""

    files: list[BackupFile] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    queued: dict[str, int] = field(default_factory=dict)
    new_bytes: int = 0


def back_up(source: BackupSource, repository: Repository, on_pages: OnPages = lambda _done, _total: None) -> Manifest:
    """Add a backup to a repository, whose lock the caller holds, and return its manifest.

    `on_pages` is told how many pages of a database are copied, and of how many. A damaged database does not keep the
    others from being backed up: it is named in `failed`.

    Raises `StoreUnavailable` when the repository's disk is full or fails, and `Unavailable` when the broker does not
    answer; then nothing is added.
    """
    begun_at = from_micros(source.now())
    before, _ = repository.manifests()
    latest = before[-1] if before else None
    draft = _Draft()
    with repository.adding():
        _add_queued(source, repository, draft)
        stores = Stores(source.data)
        try:
            names = stores.all_names()
            for name in names:
                _add_store(source, repository, draft, _StoreCopy(stores, name, latest), on_pages)
        finally:
            stores.close()
        for name in names:
            _add_memory_files(source, repository, draft, name)
        if repository.is_encrypted or source.with_keys:
            with suppress(FileNotFoundError):
                _add_bytes(repository, draft, KEY_FILE, (source.data / KEY_FILE).read_bytes())
        _add_bytes(repository, draft, SETTINGS, msgspec.json.format(msgspec.json.encode(dict(source.settings))))
        _add_tombstones(source, repository, draft)
        number = latest.number + 1 if latest is not None else 1
        manifest = Manifest(
            id=f"{number:06d}-{begun_at:%Y%m%dT%H%M%SZ}",
            number=number,
            repository=repository.header.id,
            product=source.product,
            created_at=begun_at,
            finished_at=datetime.now(UTC),
            files=tuple(draft.files),
            failed=draft.failed,
            queued=draft.queued,
            new_blocks=len(_blocks(draft.files) - _blocks(file for old in before for file in old.files)),
            new_bytes=draft.new_bytes,
        )
        repository.add_manifest(manifest)
    return manifest


def has_changed(source: BackupSource, repository: Repository) -> bool:
    """Return whether a store was created, deleted or written since the last backup, or something is queued."""
    manifests, _ = repository.manifests()
    latest = manifests[-1] if manifests else None
    stores = Stores(source.data)
    names = stores.all_names()
    if latest is None or set(latest.stores) | set(latest.failed) != set(names):
        return True
    if source.inbox is not None and source.inbox.workspaces():
        return True
    return any(_StoreCopy(stores, name, latest).unchanged is None for name in names)


@dataclass(frozen=True, slots=True)
class _StoreCopy:
    """A store to copy, and the manifest of the last backup, since which the store may not have changed."""

    stores: Stores
    name: str
    latest: Manifest | None

    @property
    def unchanged(self) -> BackupFile | None:
        """Return the file of the last backup if the store was not written since."""
        file = self.latest.stores.get(self.name) if self.latest is not None else None
        if file is None or file.store is None or not file.store.stamp.settled:
            return None
        stamp = file.store.stamp
        return file if msgspec.structs.replace(self.stamp(0), settled=True) == stamp else None

    def stamp(self, now: int) -> SourceStamp:
        """Return the stamp of the store's files. Raises `NotFound` if it was deleted."""
        found = self.stores.stamp(self.name)
        if found is None:
            raise NotFound(f"there is no workspace {self.name!r}", field="workspace")
        inode = self.stores.database_path(self.name).stat().st_ino
        return convert(found, SourceStamp, inode=inode, settled=found.is_settled(now))


def _add_store(
    source: BackupSource, repository: Repository, draft: _Draft, copy: _StoreCopy, on_pages: OnPages
) -> None:
    path = copy.stores.database_path(copy.name)
    try:
        if (unchanged := copy.unchanged) is not None:
            draft.files.append(unchanged)
            return
        stamp = copy.stamp(source.now())
        kind: Kind = "account" if copy.name == ACCOUNT_STORE else "workspace"
        with copied(path, source.scratch, kind, on_pages) as (state, content):
            store = convert(state, StoreState, name=copy.name, stamp=stamp)
            _add(repository, draft, str(path.relative_to(source.data)), content, kind="database", store=store)
    except NotFound:  # deleted meanwhile
        return
    except Permanent as error:  # damaged in one of many ways
        draft.failed[copy.name] = str(error)


def _add_queued(source: BackupSource, repository: Repository, draft: _Draft) -> None:
    """Add the accepted items that are not stored yet, each as a line with its field and its value in base64."""
    if source.inbox is None:
        return
    for workspace in source.inbox.workspaces():
        with tempfile.TemporaryFile(dir=source.scratch) as lines:
            count = 0
            for item_field, value in source.inbox.peek(workspace):
                lines.write(b64encode(item_field) + b" " + b64encode(value) + b"\n")
                count += 1
            lines.seek(0)
            if count:
                draft.queued[workspace] = count
                _add(repository, draft, f"{INBOX}/{workspace}", lines)


def _add_memory_files(source: BackupSource, repository: Repository, draft: _Draft, store: str) -> None:
    """Add the git repositories of a store's agents; one that cannot be copied is named in `failed`."""
    folders = GitFolders(source.data, looks_secret)
    for agent in folders.agents(store):
        path = folders.folder(store, agent)
        with tempfile.TemporaryFile(dir=source.scratch) as content:
            try:
                if not folders.repository(store, agent).archive(content):
                    continue
            except StoreUnavailable as error:
                draft.failed[path] = str(error)
                continue
            content.seek(0)
            _add(repository, draft, path, content, kind="folder")


def _add_tombstones(source: BackupSource, repository: Repository, draft: _Draft) -> None:
    folder = source.data / TOMBSTONES
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_file():
            _add_bytes(repository, draft, f"{TOMBSTONES}/{path.name}", path.read_bytes())


def _add_bytes(repository: Repository, draft: _Draft, path: str, content: bytes) -> None:
    _add(repository, draft, path, BytesIO(content))


def _add(
    repository: Repository,
    draft: _Draft,
    path: str,
    content: BinaryIO,
    *,
    kind: FileKind = "file",
    store: StoreState | None = None,
) -> None:
    size, sha256, blocks, added = repository.put(content)
    draft.new_bytes += added
    draft.files.append(BackupFile(path=path, kind=kind, bytes=size, sha256=sha256, blocks=blocks, store=store))


def _blocks(files: Iterable[BackupFile]) -> set[str]:
    return {block for file in files for block in file.blocks}
