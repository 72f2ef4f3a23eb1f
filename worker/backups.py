"""Periodic backups: decides from the existing backups whether a new one is due, and makes it.

A failed backup leaves no backup, so it is due again at the next look, some minutes later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from adapters.backups.manifest import Manifest
from adapters.backups.repository import (
    Repository,
    create_repository,
    locked,
    make_private,
    open_repository,
    prune_repository,
    read_header,
)
from memory.lifecycle.backup import BackupSource, back_up
from memory.lifecycle.restore import RestoreOptions, restore
from retrieval.query import RecallRequest
from reverie import __version__
from reverie.clock import from_micros, now_micros
from reverie.contract import ACCOUNT_STORE
from reverie.errors import Conflict, Permanent, Rejected, StoreUnavailable, Unavailable
from storage.private_files import write_private
from storage.recall.words import hashes_of, words_of
from storage.verify import SampledChunk, sampled_chunks, verify
from storage.viewer import Viewer
from worker.runtime import Runtime
from worker.settings import Settings, load_settings

# So many messages of each workspace are recalled by their own words.
_RECALLS: Final = 20
# So many words of a message make the query.
_WORDS: Final = 24
_LEAST_WORDS: Final = 3
# A result with so many words of the query counts as the message: if hundreds of messages differ in one number, it does
# not matter which ten of them are found.
_SHARED_WORDS: Final = 0.5


@dataclass(slots=True)
class BackupCheck:
    """The result of a trial restore: rows by store, faults, and how many of the sampled messages were recalled."""

    backup: str
    bytes: int
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    wrong: dict[str, list[str]] = field(default_factory=dict)
    recalled: int = 0
    asked: int = 0
    stored_from_queue: int = 0


def backup_source(runtime: Runtime, scratch: Path | None = None, *, with_keys: bool = False) -> BackupSource:
    """Return the source of a backup: the runtime's data folder, its settings, and its inbox if the broker answers.

    The installation's keys are in encrypted backups, and with `with_keys` also in others.

    Raises `Unavailable` if a broker is configured and does not answer: its queued messages would be missing.
    """
    if runtime.settings.database:
        raise Rejected(
            "backups of a PostgreSQL database are made with its own tools, such as pg_dump or continuous archiving"
            " (https://www.postgresql.org/docs/current/backup.html)",
            field="database",
        )
    inbox = runtime.inbox
    try:
        inbox.workspaces()
    except Unavailable:
        if runtime.settings.broker:
            raise
        inbox = None  # type: ignore[assignment]  # the embedded broker of a stopped installation
    data = runtime.settings.data.resolve()
    settings = plain_settings(runtime.settings)
    return BackupSource(data, inbox, settings, scratch or data, __version__, runtime.now, with_keys)


def plain_settings(settings: Settings) -> dict[str, Any]:
    """Return the settings that are not defaults, without secrets: no keys, and no passwords in URLs."""
    chosen = settings.model_dump(mode="json", exclude_defaults=True)
    shown = {name for name, setting in Settings.model_fields.items() if setting.repr}
    return {name: _without_password(value) for name, value in chosen.items() if name in shown}


def check_backup(repository: Repository, manifest: Manifest, scratch: Path) -> BackupCheck:
    """Restore a backup into a new folder in `scratch`, verify its databases, and recall messages by their words.

    The caller removes `scratch`. Raises what `restore` raises.
    """
    data = scratch / "data"
    report = restore(repository, manifest, data, RestoreOptions(now=now_micros))
    check = BackupCheck(manifest.id, report.bytes, stored_from_queue=report.stored_from_queue)
    check.wrong |= {name: [reason] for name, reason in manifest.failed.items()}
    # By words only: the check must work without an installed model, and send nothing to a reranker.
    runtime = Runtime(load_settings(data=data, embedding_provider="none"), reranker=None)
    try:
        for name in runtime.stores.all_names():
            verdict = verify(runtime.stores.workspace(name))
            check.counts[name] = verdict.counts
            if verdict.wrong:
                check.wrong.setdefault(name, []).extend(verdict.wrong)
            if name != ACCOUNT_STORE:
                _recall(runtime, name, check)
    finally:
        runtime.close()
    return check


def _recall(runtime: Runtime, workspace: str, check: BackupCheck) -> None:
    asked = found = 0
    for chunk in sampled_chunks(runtime.stores.workspace(workspace), _RECALLS):
        words = chunk.text.split()
        if len(words_of(chunk.text)) < _LEAST_WORDS:  # a message of emoji or dots cannot be found
            continue
        request = RecallRequest(agent=chunk.agent, query=" ".join(words[:_WORDS]), limit=10)
        viewer = Viewer(chunk.user, group=chunk.group)
        results = runtime.recaller.recall(workspace, request, viewer=viewer).response.results
        asked += 1
        found += _is_recalled(chunk, request.query, [result.text for result in results])
    check.asked += asked
    check.recalled += found
    if found < asked:
        check.wrong.setdefault(workspace, []).append(f"only {found} of {asked} messages were recalled by their words")


def _is_recalled(chunk: SampledChunk, query: str, texts: Sequence[str]) -> bool:
    """Return whether the words of a chunk are in the index, and a recall found its message or a similar one."""
    if hashes_of(f"{chunk.lead} {chunk.text}").tobytes() != chunk.words:
        return False
    asked = set(hashes_of(query).tolist())
    return any(
        text.strip() in chunk.source or len(asked.intersection(hashes_of(text).tolist())) >= _SHARED_WORDS * len(asked)
        for text in texts
        if text.strip()
    )


def _without_password(value: Any) -> Any:
    """Return a setting; if it is a URL, without the user and password in it."""
    if not (isinstance(value, str) and "@" in value and "://" in value):
        return value
    parts = urlsplit(value)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


_MAX_KEY_FILE_BYTES: Final = 64 * 1024


def backup_secret(settings: Settings) -> bytes | None:
    """Return the passphrase of the backups that Reverie makes by itself, None for none. Raises `Rejected`."""
    if settings.backup_key_file is not None:
        return secret_in(settings.backup_key_file)
    return settings.backup_passphrase.encode() if settings.backup_passphrase else None


def secret_in(path: Path) -> bytes:
    """Return the content of a key file. Raises `Rejected` if it cannot be read, is empty, or too large."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_KEY_FILE_BYTES + 1).strip()
    except OSError as error:
        raise Rejected(f"the key file {path} cannot be read: {error.strerror}", field="key_file") from error
    if not 0 < len(content) <= _MAX_KEY_FILE_BYTES:
        raise Rejected(f"the key file {path} must have 1 to {_MAX_KEY_FILE_BYTES:,} bytes", field="key_file")
    return content


# The id of the last used folder of backups: if an empty folder is in its place, its disk is not mounted.
_USED = "backups.used"


def back_up_if_due(runtime: Runtime, *, manual: bool) -> dict[str, Any]:
    """Add a backup to `backup_folder` if the newest is older than `backup_interval_hours`, and return counts.

    A manual run always adds a backup. Raises what `back_up` raises, `Rejected` for a folder that cannot be used, and
    `Permanent` while the newest backup is incomplete.
    """
    settings = runtime.settings
    assert settings.backup_folder is not None
    folder = settings.backup_folder.resolve()
    try:
        repository = _opened(runtime, folder)
        with locked(folder):
            ids = repository.ids()
            newest = repository.manifest(ids[-1]) if ids else None
            if not manual and newest is not None and not _is_due(newest, runtime, settings.backup_interval_hours):
                counts = {"not_due": 1}
            else:
                newest = back_up(backup_source(runtime), repository)
                removed = prune_repository(repository, settings.backup_keep)[0]
                counts = {"backups": 1, "stores": len(newest.stores), "new_bytes": newest.new_bytes}
                counts["removed"] = len(removed)
            kept = len(repository.ids())
    except Conflict:  # somebody has started a backup or restore
        return {"busy": 1}
    if newest is not None and newest.failed:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in newest.failed.items())
        raise Permanent(f"backup {newest.id} in {folder} is incomplete ({reasons})")
    made_at = {} if newest is None else {"newest_at": newest.created_at.timestamp()}
    return {**counts, "kept": kept, **made_at}


def _is_due(newest: Manifest, runtime: Runtime, hours: float) -> bool:
    """Return whether the next backup is due; a backup from the future means that the clock was set back."""
    now: datetime = from_micros(runtime.now())
    return not newest.created_at <= now < newest.created_at + timedelta(hours=hours)


def _opened(runtime: Runtime, folder: Path) -> Repository:
    """Return the folder of backups; an empty folder is set up if no backup was made before. Raises `Rejected`."""
    data = runtime.settings.data.resolve()
    if folder == data or folder.is_relative_to(data):
        raise Rejected(f"backup_folder {folder} lies in the data folder: name another", field="backup_folder")
    if not folder.is_dir():
        raise StoreUnavailable(f"backup_folder {folder} does not exist: create it, or mount its disk")
    secret = backup_secret(runtime.settings)
    used, header = data / _USED, read_header(folder)
    if header is None and used.exists():
        raise StoreUnavailable(
            f"backup_folder {folder} has no backups any more: mount its disk, or remove {used} to begin anew"
        )
    make_private(folder, encrypted=secret is not None)
    if header is None:
        create_repository(folder, secret)
        header = read_header(folder)
    if header is not None and not (used.exists() and used.read_text().strip() == header.id):
        write_private(used, f"{header.id}\n".encode())
    return open_repository(folder, secret)
