"""What a backup takes from this process's settings, and the check that a restored one can be used."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from adapters.backups.manifest import Manifest
from adapters.backups.repository import Repository
from memory.upkeep.backup import BackupSource
from memory.upkeep.restore import RestoreOptions, restore
from retrieval.request import RecallRequest
from reverie import __version__
from reverie.clock import now_micros
from reverie.contract import ACCOUNT_STORE
from reverie.errors import Rejected, Unavailable
from storage.upkeep.verify import random_chunks, verify
from storage.viewer import Viewer
from worker.runtime import Runtime
from worker.settings import Settings, load_settings

# Messages of each workspace that are recalled by their own words.
_RECALLS: Final = 20
# Words of a message that are asked for.
_WORDS: Final = 24
_LEAST_WORDS: Final = 3
# A message whose words many others repeat may not be among the first; below this share something is wrong.
_FOUND_SHARE: Final = 0.9


@dataclass(slots=True)
class BackupCheck:
    """The result of a trial restore: rows by store, what is wrong, and how many messages were recalled of how many."""

    backup: str
    bytes: int
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    wrong: dict[str, list[str]] = field(default_factory=dict)
    recalled: int = 0
    asked: int = 0
    stored_from_queue: int = 0


def backup_source(runtime: Runtime, scratch: Path | None = None, *, with_keys: bool = False) -> BackupSource:
    """Return what is backed up: the runtime's data folder, its settings, and its inbox if the broker answers.

    Its keys are in encrypted backups, and `with_keys` in others, too.

    Raises `Unavailable` if a broker is configured and does not answer: what is queued in it would be missing.
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
    # Words alone: the check must work where the model is not installed, and send nothing to a reranker.
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
    for chunk in random_chunks(runtime.stores.workspace(workspace), _RECALLS):
        words = chunk.text.split()
        if len(words) < _LEAST_WORDS:
            continue
        request = RecallRequest(agent=chunk.agent, query=" ".join(words[:_WORDS]), limit=10)
        viewer = Viewer(chunk.user, group=chunk.group)
        results = runtime.recaller.recall(workspace, request, viewer=viewer).response.results
        asked += 1
        found += any(result.text.strip() and result.text.strip() in chunk.source for result in results)
    check.asked += asked
    check.recalled += found
    if found < asked * _FOUND_SHARE:
        check.wrong.setdefault(workspace, []).append(f"only {found} of {asked} messages were recalled by their words")


def _without_password(value: Any) -> Any:
    """Return a setting; if it is a URL, without the user and password in it."""
    if not (isinstance(value, str) and "@" in value and "://" in value):
        return value
    parts = urlsplit(value)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
