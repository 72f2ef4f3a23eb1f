"""Makes a data folder from a backup.

The new folder is made beside the target, under another name: every block and file is compared with its hash, queued
messages are stored, tombstones are applied, and webhooks and endpoints are switched off. Only then is it renamed, in
one step, so that no process ever opens an incomplete folder. Until then the old folder stays as it was.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tarfile
import tempfile
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

from adapters.backups.manifest import BackupFile, Manifest
from adapters.backups.repository import Repository, exchange, unpack, writing_errors
from adapters.broker.inbox import Number, parse_taken
from adapters.kept_secrets import sync_folder
from adapters.workspace_git import GitFolders
from memory.fragments import HashKey
from memory.lifecycle.backup import INBOX, SETTINGS, TOMBSTONES
from memory.lifecycle.erased_files import drop_unfounded_lines
from memory.lifecycle.erasure_rows import RowErasure, clear_deleted, erased_name
from memory.pipeline.incoming import Item, decode
from memory.pipeline.storing import store_items
from memory.secrets import looks_secret
from memory.tombstones import Tombstone, add_tombstones, hash_key, read_tombstones, target_hash
from memory.trust.tokens import REVOKED
from memory.upkeep.notebook import Notebooks
from reverie.contract import ACCOUNT_STORE
from reverie.errors import Conflict, StoreUnusable
from storage.index.search_index import forget_endpoints
from storage.lifecycle.erased_rows import Candidate
from storage.lifecycle.erasures import Subject, message_name
from storage.migrations import LINES, Kind, check_known
from storage.stores import Store, Stores
from storage.trust.tokens import TokenRecord

# The settings with which the backup was made, for the person who restores it: none of them is applied.
RESTORED_SETTINGS: Final = "restored-settings.json"
_TOMBSTONE_KEY: Final = "key"
_BATCH_ITEMS: Final = 500


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """How to restore. `replace` exchanges a folder that exists; it is kept under another name.

    `newest` is the repository's newest backup: its tombstones are applied as well. `keep_endpoints` leaves webhooks
    active, which is right only for the installation that made the backup. `now` is in microseconds.
    """

    now: Callable[[], int]
    replace: bool = False
    keep_endpoints: bool = False
    newest: Manifest | None = None
    on_file: Callable[[int, int], None] = lambda _done, _total: None


@dataclass(slots=True)
class RestoreReport:
    """What was restored. `stored_from_queue` are messages that the backup found in the broker."""

    backup: str
    data: str
    files: int = 0
    bytes: int = 0
    stores: dict[str, dict[str, int]] = field(default_factory=dict)
    stored_from_queue: int = 0
    tombstones: int = 0
    webhooks_paused: int = 0
    endpoints_removed: int = 0
    replaced: str = ""


def restore(repository: Repository, manifest: Manifest, target: Path, options: RestoreOptions) -> RestoreReport:
    """Restore a backup to the folder `target`; the caller makes sure that no process uses it.

    Raises `StoreUnusable` if the backup does not verify or has a newer schema, `Conflict` if the folder is in use or
    not empty (unless `replace`), and `StoreUnavailable` if the disk is full; then `target` is unchanged.
    """
    _check_schema(manifest)
    occupied = target.exists() and any(target.iterdir())
    if occupied and not options.replace:
        raise Conflict(f"{target} is not empty: name another folder with --data, or use --replace", field="data")
    report = RestoreReport(manifest.id, str(target))
    with writing_errors(target), _draft_of(target) as draft:
        done = 0
        for file in manifest.files:
            _write_file(repository, file, draft)
            done += file.bytes
            options.on_file(done, manifest.total_bytes)
        report.files, report.bytes = len(manifest.files), manifest.total_bytes
        report.stores = {name: file.store.counts for name, file in manifest.stores.items() if file.store is not None}
        _add_newer_tombstones(repository, manifest, draft, target, options)
        _adapt(draft, manifest, options, report)
        _move(draft, target, options, report)
    return report


def _check_schema(manifest: Manifest) -> None:
    for name, file in manifest.stores.items():
        assert file.store is not None
        kind: Kind = "account" if file.path == "account.db" else "workspace"
        for line in LINES[kind]:
            check_known(Path(f"{manifest.id}: {name}"), line, file.store.schema.get(line))


@contextmanager
def _draft_of(target: Path) -> Iterator[Path]:
    """Yield a new folder beside `target`, locked; it is removed unless it was renamed.

    A folder that a killed restore left is removed first. Raises `Conflict` if another restore to this place is running.
    """
    draft = target.with_name(f".{target.name}.restoring")
    for parent in [*reversed(target.parents)]:
        if not parent.exists():
            parent.mkdir(mode=0o700)
    path = draft.with_name(f"{draft.name}.lock")
    lock = _lock_file(path, target)
    try:
        if draft.exists():
            shutil.rmtree(draft)
        draft.mkdir(mode=0o700)
        try:
            yield draft
        finally:
            shutil.rmtree(draft, ignore_errors=True)
            path.unlink(missing_ok=True)
    finally:
        os.close(lock)


def _lock_file(path: Path, target: Path) -> int:
    """Return a locked descriptor of the file at `path`. Raises `Conflict` if another restore to `target` has it."""
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise Conflict(f"another restore to {target} is running", field="data") from None
        if os.fstat(lock).st_nlink:
            return lock
        os.close(lock)  # a restore that ended meanwhile has removed it: nobody else would see this lock


def _write_file(repository: Repository, file: BackupFile, draft: Path) -> None:
    path = draft / (RESTORED_SETTINGS if file.path == SETTINGS else file.path)
    _private(path.parent, draft)
    if file.kind == "folder":
        with tempfile.TemporaryFile(dir=draft) as archive:
            repository.write(file, archive)
            archive.seek(0)
            try:
                with tarfile.open(fileobj=archive, mode="r:") as tar:
                    unpack(tar, path)
            except tarfile.TarError as error:
                raise StoreUnusable(f"{file.path} of the backup cannot be unpacked ({error})") from error
        path.chmod(0o700)
        return
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as target:
        repository.write(file, target)
        target.flush()
        os.fsync(target.fileno())


def _add_newer_tombstones(
    repository: Repository, manifest: Manifest, draft: Path, target: Path, options: RestoreOptions
) -> None:
    """Add the tombstones of erasures since the backup: from the newest backup, and from the folder to be replaced.

    Tombstones of another installation have another key and do not apply to this data.
    """
    with tempfile.TemporaryDirectory(dir=draft) as newer:
        if options.newest is not None and options.newest.id != manifest.id:
            for file in options.newest.files:
                if file.path.startswith(f"{TOMBSTONES}/"):
                    _write_file(repository, file, Path(newer))
        for source in (Path(newer), target):
            _merge_tombstones(source, draft)


def _merge_tombstones(source: Path, into: Path) -> None:
    """Add the tombstones of a data folder to those of another one, unless they have another key."""
    keys = [folder / TOMBSTONES / _TOMBSTONE_KEY for folder in (source, into)]
    if not keys[0].is_file():
        return
    if not keys[1].is_file():
        shutil.copytree(source / TOMBSTONES, into / TOMBSTONES, dirs_exist_ok=True)
    elif keys[0].read_bytes() == keys[1].read_bytes():
        add_tombstones(into, list(read_tombstones(source)))


def _adapt(draft: Path, manifest: Manifest, options: RestoreOptions, report: RestoreReport) -> None:
    """Store queued messages, erase what was erased since the backup, and switch webhooks and endpoints off."""
    stores = Stores(draft)
    try:
        for path in sorted((draft / INBOX).glob("*")):
            # Stored with the time of the backup: a message that was erased later must not look newer.
            report.stored_from_queue += _store_queued(stores, path, int(manifest.created_at.timestamp() * 1_000_000))
        shutil.rmtree(draft / INBOX, ignore_errors=True)
        number = len({tombstone.hash for tombstone in read_tombstones(draft)})
        if number:
            apply_tombstones(stores, now=options.now())
        report.tombstones = number
        for name in stores.all_names():
            if not options.keep_endpoints:
                with stores.workspace(name).writing() as tx:
                    report.webhooks_paused += tx.due_schedules.pause_webhooks(now=options.now())
                    report.endpoints_removed += forget_endpoints(tx.connection)
    finally:
        stores.close()  # moves the logs into the databases


def _store_queued(stores: Stores, path: Path, now: int) -> int:
    stored = 0
    store = stores.workspace(path.name)
    with path.open("rb") as lines:
        while batch := list(islice(lines, _BATCH_ITEMS)):
            items = sorted(map(_queued_item, batch), key=lambda item: item.taken.accepted_at)
            while items:
                written = store_items(store, items, now)
                items = [item for item in items if item.taken.field not in written.outcomes]
                stored += written.report.stored
    return stored


def _queued_item(line: bytes) -> Item:
    item_field, value = map(b64decode, line.split(b" ", 1))
    return decode(parse_taken(item_field, value, 1))


def _move(draft: Path, target: Path, options: RestoreOptions, report: RestoreReport) -> None:
    for folder, _, _ in os.walk(draft):
        sync_folder(Path(folder))
    if not target.exists() or not any(target.iterdir()):
        draft.rename(target)
        sync_folder(target.parent)
        return
    # The draft gets the name under which the old folder is kept before the two are exchanged.
    kept = target.with_name(f"{target.name}.replaced-{options.now() // 1_000_000}")
    draft.rename(kept)
    exchange(kept, target)
    report.replaced = str(kept)


def _private(folder: Path, draft: Path) -> None:
    """Create a folder in the draft, and those above it, for the owner only."""
    for missing in reversed([folder, *folder.parents]):
        if missing.is_relative_to(draft) and not missing.exists():
            missing.mkdir(mode=0o700)


def apply_tombstones(stores: Stores, *, now: int) -> dict[str, int]:
    """Remove rows from all stores that were erased since the copy; return how many of each table.

    `now`, in microseconds, dates the commits of memory files.

    Only rows that were stored before their erasure are removed: later messages of the same person stay. Running it
    again changes nothing. No other process may use the data folder meanwhile. Raises `StoreUnavailable`.
    """
    tombstones: dict[str, Tombstone] = {}
    for tombstone in read_tombstones(stores.data_dir):
        before = tombstones.get(tombstone.hash)
        if before is None or before.at < tombstone.at:
            tombstones[tombstone.hash] = tombstone
    total: Counter[str] = Counter()
    if not tombstones:
        return {}
    restored = _Restored(stores, tombstones, now)
    for name in stores.all_names():
        total += restored.apply(stores.workspace(name, create=False))
    total += restored.end_tokens()
    return dict(total)


class _Restored:
    """The stores of a restored data folder, and its tombstones by hash."""

    def __init__(self, stores: Stores, tombstones: dict[str, Tombstone], now: int) -> None:
        self._stores = stores
        self._tombstones = tombstones
        self._now = now
        self._key: HashKey = hash_key(stores.data_dir)
        repositories = GitFolders(stores.data_dir, looks_secret)
        self._notebooks = Notebooks(repositories)

    def apply(self, store: Store) -> Counter[str]:
        """Remove from one store what tombstones name; return the numbers of removed rows."""
        counts: Counter[str] = Counter()
        with store.reading() as tx:
            agents = tx.kept_out.agents()
        for agent in agents:
            removed: Counter[str] = Counter()
            rows = RowErasure(
                forgotten_at=lambda: Number(0, ""),
                drop_cached=lambda _store, _sessions: None,
                on_removed=lambda _store, number, removed=removed: removed.update(number),  # type: ignore[misc]
            )
            for subject in self._subjects(store, agent):
                rows.erase(store, agent, subject)
            if any(removed.values()):
                drop_unfounded_lines(store, self._notebooks, agent, now=self._now)
            counts += removed
        if counts:
            clear_deleted(store)
        return counts

    def end_tokens(self) -> Counter[str]:
        """Revoke the tokens that were revoked or rotated since, and those of erased users; return how many.

        The names of erased users are taken out of their tokens.
        """
        tokens = self._stores.tokens()
        counts: Counter[str] = Counter()
        for token in tokens.not_revoked():
            erased = self._user_erased(token)
            if erased is not None:
                tokens.forget_name(token.id, erased_name(erased.hash), now=erased.at)
            elif (revoked := self._tombstone(REVOKED, None, None, token.id)) is not None:
                tokens.revoke(token.id, now=revoked.at)
            else:
                continue
            counts["tokens"] += 1
        return counts

    def _user_erased(self, token: TokenRecord) -> Tombstone | None:
        """Return the tombstone of a token's user, if the user was erased after the token was made."""
        if token.user is None:
            return None
        # An erasure that is limited to a workspace or an agent ends only tokens that are valid for nothing else.
        agents = [None, *(token.agents if token.agents is not None and len(token.agents) == 1 else ())]
        found = [
            self._tombstone("user", workspace, agent, token.user)
            for workspace in (None, token.workspace)
            for agent in agents
        ]
        after = [stone for stone in found if stone is not None and token.created_at <= stone.at]
        return max(after, key=lambda stone: stone.at, default=None)

    def _subjects(self, store: Store, agent: str) -> list[Subject]:
        """Return the subjects of tombstones whose rows have to be removed from an agent's part of a store."""
        with store.reading() as tx:
            rows = tx.for_agent(agent).candidates
            found = {subject for one in rows.all() for subject in self._named(store, agent, one)}
            origins = rows.origins() if store.name == ACCOUNT_STORE else [store.name]
        for origin in [None, *origins]:
            limit = origin if store.name == ACCOUNT_STORE else None
            found |= {
                Subject("agent", "", limit, tombstone.at)
                for tombstone in (
                    self._tombstone("agent", origin, agent, ""),
                    self._tombstone("workspace", origin, None, "") if origin is not None else None,
                )
                if tombstone is not None
            }
        return sorted(found, key=lambda subject: (subject.kind, subject.session, subject.id, subject.before))

    def _named(self, store: Store, agent: str, candidate: Candidate) -> Iterator[Subject]:
        in_account = store.name == ACCOUNT_STORE
        if in_account and candidate.kind == "memory":  # its tombstone names the workspace that erased it
            workspaces: list[str | None] = [None, *self._stores.names()]
        else:
            workspaces = [None, candidate.origin if in_account else store.name]
        name = message_name(candidate.session, candidate.id) if candidate.kind == "message" else candidate.id
        for workspace in workspaces:
            for limit in (None, agent):
                tombstone = self._tombstone(candidate.kind, workspace, limit, name)
                if tombstone is not None:
                    origin = workspace if in_account and candidate.kind != "memory" else None
                    yield Subject(candidate.kind, candidate.id, origin, tombstone.at, candidate.session)

    def _tombstone(self, kind: str, workspace: str | None, agent: str | None, target: str) -> Tombstone | None:
        hashed = target_hash(self._key, kind, workspace=workspace, agent=agent, target=target)
        return self._tombstones.get(hashed)
