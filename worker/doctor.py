"""Checks of a running Reverie: server, broker, workers, jobs, and the models that they use."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec
import psutil
import pysqlite3

from adapters.backups.repository import open_repository, read_header
from beat_schedule import PERIODIC_JOBS
from reverie import __version__
from reverie.contract import job_name
from reverie.counts import counted
from reverie.errors import ReverieError
from reverie.pipeline.status import PipelineStatus
from storage.engine import check_sqlite_version
from storage.opened import open_stores
from worker.backups import backup_secret
from worker.settings import Settings
from worker.supervision.embedded_broker import valkey_server_path

State: TypeAlias = Literal["ok", "warning", "problem"]


RUNBOOKS: Final[Mapping[str, str]] = {
    "Broker": "the-broker-is-gone",
    "Data folder": "the-database-is-gone",
    "Databases": "the-database-is-gone",
    "Disk": "the-disk-is-full",
    "Embedder": "a-queue-grows",
    "Faults": "workers-restart",
    "Hosts": "a-person-asks-for-erasure",
    "Inbox": "a-queue-grows",
    "Jobs": "jobs-or-schedules-are-late",
    "Server": "a-bad-night",
    "Workers": "workers-restart",
}


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """The finding about one `subject`; a warning or a problem has the remedy as its `advice`.

    `runbook` is the section of docs/operations.md about a problem, the same as in its alert; empty if there is none.
    """

    subject: str
    state: State
    found: str
    advice: str = ""
    runbook: str = ""

    def __post_init__(self) -> None:
        """Add the runbook of a problem."""
        if self.state == "problem" and self.subject in RUNBOOKS:
            msgspec.structs.force_setattr(self, "runbook", f"docs/operations.md#{RUNBOOKS[self.subject]}")


# Yields findings. Raises Reverie's errors, whose texts say what to do.
Check: TypeAlias = Callable[[], Iterator[Finding]]


def run_check(subject: str, check: Check) -> Iterator[Finding]:
    """Yield the findings of a check. An error ends the check and is a problem."""
    try:
        yield from check()
    except ReverieError as error:
        yield Finding(subject, "problem", str(error))
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        yield Finding(
            subject, "problem", f"{place}{error.strerror or error}", "see who owns it, and whether it is there"
        )


# All processes together keep below 1.5 GiB, see docs/benchmarks.md.
_MEMORY_BYTES: Final = 3 * 2**29
# A process keeps a few files open for each workspace in use.
_OPEN_FILES: Final = 1_024
_GIB: Final = 2**30


def check_programs() -> Iterator[Finding]:
    """Check the versions of Python, Reverie and SQLite."""
    yield Finding("Reverie", "ok", f"{__version__} on Python {platform.python_version()}, {platform.platform()}")
    check_sqlite_version()
    yield Finding("SQLite", "ok", pysqlite3.sqlite_version)


def check_memory(*, running: bool) -> Iterator[Finding]:
    """Check that there is memory for all processes, unless they run already."""
    memory = psutil.virtual_memory()
    found = f"{memory.available / _GIB:.1f} of {memory.total / _GIB:.1f} GiB available"
    if running or memory.available >= _MEMORY_BYTES:
        yield Finding("Memory", "ok", found)
    else:
        advice = f"Reverie needs {_MEMORY_BYTES / _GIB:.1f} GiB under load: end other programs"
        yield Finding("Memory", "warning", found, f'{advice}, or set embedding_provider = "model2vec"')


def check_open_files() -> Iterator[Finding]:
    """Check how many files a process may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = "any number" if soft == resource.RLIM_INFINITY else f"{soft:,}"
    if soft == resource.RLIM_INFINITY or soft >= _OPEN_FILES:
        yield Finding("Open files", "ok", f"{limit} allowed")
    else:
        most = "unlimited" if hard == resource.RLIM_INFINITY else hard
        yield Finding("Open files", "warning", f"{limit} allowed", f"raise it before `reverie up`: ulimit -n {most}")


def check_broker_program(settings: Settings) -> Iterator[Finding]:
    """Check the program of the embedded broker, unless a broker is named."""
    if settings.broker is None:
        yield Finding("Broker program", "ok", str(valkey_server_path()))


_SPACE_BYTES: Final = 2**30
_LEAST_SPACE_BYTES: Final = 2**27
_LEAST_LOG_BYTES: Final = 2**20
# SQLite's write-ahead log needs shared memory, which these file systems do not have.
_NETWORK_FILE_SYSTEMS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smbfs", "smb3", "afpfs", "fuse.sshfs", "9p", "glusterfs", "ceph", "lustre", "beegfs"}
)
# A backup may take this many times its interval before it counts as missing.
_LATE_INTERVALS: Final = 2
_SHOWN: Final = 5


def check_folder(data: Path) -> Iterator[Finding]:
    """Check that the folder is the user's own, private and writable."""
    status = data.stat()
    if status.st_uid != os.geteuid() and os.geteuid() != 0:
        advice = "run Reverie as the user who owns it, or name another folder with --data"
        yield Finding("Data folder", "problem", f"{data} belongs to another user (uid {status.st_uid})", advice)
    elif not os.access(data, os.R_OK | os.W_OK | os.X_OK):
        yield Finding("Data folder", "problem", f"{data} cannot be written", f"chmod u+rwx {data}")
    elif stat.S_IMODE(status.st_mode) & 0o077:
        found = f"{data} can be entered by others (mode {stat.S_IMODE(status.st_mode):o})"
        yield Finding("Data folder", "warning", found, f"chmod 700 {data}")
    else:
        yield Finding("Data folder", "ok", str(data))


def check_disk(data: Path) -> Iterator[Finding]:
    """Check the file system of the folder, and the space on it."""
    system = _file_system(data)
    if system in _NETWORK_FILE_SYSTEMS:
        advice = "several processes of SQLite damage their files there: move the folder to a disk of this machine"
        yield Finding("File system", "problem", f"{data} is on {system}, a network file system", advice)
    free = shutil.disk_usage(data).free
    found = f"{free / 2**30:.1f} GiB free" + (f" ({system})" if system else "")
    advice = "make space: on a full disk messages wait in the broker, and nothing is stored"
    if free < _LEAST_SPACE_BYTES:
        yield Finding("Disk", "problem", found, advice)
    elif free < _SPACE_BYTES:
        yield Finding("Disk", "warning", found, advice)
    else:
        yield Finding("Disk", "ok", found)


def check_logs(data: Path) -> Iterator[Finding]:
    """Check that processes can write their logs; without logs they go on, but nobody learns of their errors."""
    folder = data / "logs"
    closed = [path for path in folder.glob("*.log") if not path.is_file() or not os.access(path, os.W_OK)]
    if folder.exists() and not os.access(folder, os.W_OK | os.X_OK):
        closed.append(folder)
    for path in closed[:_SHOWN]:
        yield Finding(
            "Logs",
            "problem",
            f"{path.relative_to(data)} cannot be written",
            "correct its owner and mode, and restart Reverie",
        )
    if folder.exists() and shutil.disk_usage(folder).free < _LEAST_LOG_BYTES:
        yield Finding("Logs", "problem", "the disk of the logs is full: nothing is logged", "make space")


def check_databases(data: Path, database: str | None = None) -> Iterator[Finding]:
    """Check that each database can be read by this version."""
    stores = open_stores(data, database)
    unusable = []
    names = stores.all_names()
    for name in names:
        try:
            stores.check_usable(name)
        except ReverieError as error:
            unusable.append(str(error))
    yield from (Finding("Databases", "problem", text) for text in unusable[:_SHOWN])
    if len(unusable) > _SHOWN:
        yield Finding(
            "Databases", "problem", f"{len(unusable) - _SHOWN} more cannot be used", "see `reverie db verify`"
        )
    if not unusable:
        found = f"{counted(len(names), 'database')} readable; `reverie db verify` compares their content"
        yield Finding("Databases", "ok", found)


def check_backups(settings: Settings, now: datetime) -> Iterator[Finding]:
    """Check that backups are made, and how old the newest is."""
    folder = settings.backup_folder
    if folder is None:
        advice = "name a folder on another disk as `backup_folder`, or run `reverie backup` yourself: docs/backup.md"
        yield Finding("Backups", "warning", "none are made", advice)
        return
    if read_header(folder) is None:
        yield Finding("Backups", "warning", f"none yet in {folder}", "`reverie run back-up` makes one now")
        return
    repository = open_repository(folder, backup_secret(settings))
    ids = repository.ids()
    newest = repository.manifest(ids[-1]).created_at if ids else datetime.fromtimestamp(0, UTC)
    late = timedelta(hours=settings.backup_interval_hours * _LATE_INTERVALS)
    found = f"{counted(len(ids), 'backup')} in {folder}, the newest of {newest:%Y-%m-%d %H:%M} UTC"
    if now - newest > late:
        yield Finding("Backups", "problem", found, "see why with `reverie jobs`, then `reverie run back-up`")
    else:
        yield Finding("Backups", "ok", found)


def _file_system(path: Path) -> str:
    """Return the type of the file system that a path is on, empty if it is not known."""
    resolved = path.resolve()
    mounts = {Path(part.mountpoint): part.fstype for part in psutil.disk_partitions(all=True)}
    return next((mounts[folder] for folder in (resolved, *resolved.parents) if folder in mounts), "")


# An inbox is emptied every second or so, and swept every ten.
_OLD_SECONDS: Final = 40.0
_NEARLY_FULL: Final = 0.8
# Schedules and reminders are looked at every few seconds.
_LATE_SECONDS: Final = 60.0
# A job that has not run for so many of its periods has stopped running.
_MISSED_PERIODS: Final = 3
# A running host reports every few seconds, except while it removes erased texts from its files.
_SILENT_SECONDS: Final = 600.0


def check_broker(status: PipelineStatus) -> Iterator[Finding]:
    """Check that the broker answers and does not lose messages."""
    if status.broker == "down":
        yield Finding("Broker", "problem", f"does not answer: {status.broker_error}", "start it, or correct its URL")
        return
    yield Finding("Broker", "ok", "answers")
    yield from (
        Finding("Broker", "warning", text, "see docs/operations.md#an-external-broker")
        for text in status.broker_warnings
    )


def check_workers(status: PipelineStatus) -> Iterator[Finding]:
    """Check that each queue has a worker, that beat runs, and that accepted messages are processed."""
    yield from (Finding("Faults", "problem", fault) for fault in status.faults)
    if not status.faults:
        yield Finding("Workers", "ok", f"{counted(len(status.workers), 'process')} alive, all queues served")


def check_hosts(status: PipelineStatus) -> Iterator[Finding]:
    """Check that the hosts that share a database are there: erasures wait for each."""
    silent = [host for host in status.hosts if host.silent_seconds > _SILENT_SECONDS]
    for host in silent:
        waiting = f", and holds up {counted(host.erasures, 'erasure')}" if host.erasures else ""
        found = f"{host.name} was not heard of for {host.silent_seconds / 3_600:,.1f} hours{waiting}"
        advice = f"start Reverie there, or if it is gone for good: `reverie db hosts --forget {host.id}`"
        yield Finding("Hosts", "warning", found, advice)
    failing = [host for host in status.hosts if host.error]
    for host in failing:
        advice = "erasures wait for it: see its logs for host_files_not_kept_true"
        yield Finding("Hosts", "problem", f"{host.name} cannot keep its files true: {host.error}", advice)
    if status.hosts and not silent and not failing:
        yield Finding("Hosts", "ok", f"{counted(len(status.hosts), 'host')} share the database")


def check_backlog(status: PipelineStatus) -> Iterator[Finding]:
    """Check that messages in the inboxes are being stored."""
    oldest = max((box.oldest_age_seconds for box in status.inboxes), default=0.0)
    found = f"{counted(status.inbox.items, 'item')} waiting"
    found += f", the oldest for {oldest:.0f} s" if status.inbox.items else ""
    if status.inbox.full >= _NEARLY_FULL or oldest > _OLD_SECONDS:
        yield Finding("Inbox", "problem", found, "see the log of the ingest worker: a full disk, or no worker")
    else:
        yield Finding("Inbox", "ok", found)
    if status.dead_letters:
        found = f"{counted(status.dead_letters, 'item')} set aside"
        yield Finding("Dead letters", "warning", found, "`reverie dead-letters list --all-agents` says why")
    for name, text in [*status.errors.items()][:_SHOWN]:
        yield Finding("Databases", "problem", f"{name}: {text}")


def check_jobs(status: PipelineStatus, settings: Settings) -> Iterator[Finding]:
    """Check the latest run of each periodic job, and that due schedules and reminders are carried out."""
    failed = {name: job.error for name, job in status.jobs.items() if job.error}
    for name, error in failed.items():
        yield Finding(
            "Jobs", "problem", f"{job_name(name)} failed: {error}", f"`reverie run {job_name(name)}` tries again"
        )
    missed = [name for name in _missed(status, settings) if name not in failed]
    if missed:
        found = f"not run for {_MISSED_PERIODS} periods: {', '.join(map(job_name, missed))}"
        yield Finding("Jobs", "warning", found, "does beat run, and a worker of `maintenance`?")
    if not failed and not missed:
        yield Finding("Jobs", "ok", f"{counted(len(status.jobs), 'job')} ran without error")
    late = {
        "schedules": status.time.schedules_oldest_overdue_seconds,
        "reminders": status.time.reminders_oldest_push_seconds,
    }
    for what, seconds in late.items():
        if seconds > _LATE_SECONDS:
            advice = "does beat run, and a worker of `schedules`?"
            yield Finding("Jobs", "problem", f"{what} are due for {seconds:.0f} s", advice)


def check_models(status: PipelineStatus) -> Iterator[Finding]:
    """Check the models of the workers, or of the server if no worker has reported one."""
    in_workers = sorted({worker.embedder for worker in status.workers if worker.embedder})
    embedder = status.embedder
    if in_workers:
        yield Finding("Embedder", "ok", "; ".join(in_workers))
    elif embedder.state == "down":
        yield Finding("Embedder", "problem", f"{embedder.model}: {embedder.error}", "until then recall goes by words")
    else:
        yield Finding("Embedder", "ok", embedder.model or "none: recall goes by words")
    others: Mapping[str, tuple[str, str, str]] = {
        "Language model": (status.language_model.state, status.language_model.model, status.language_model.error),
        "Reranker": (status.reranker.state, status.reranker.model, status.reranker.error),
    }
    for subject, (state, model, error) in others.items():
        if state == "down":
            yield Finding(subject, "problem", f"{model}: {error}", "does its endpoint answer, and take the key?")
        elif state == "up":
            yield Finding(subject, "ok", model)
    for store in (status.account, *status.workspaces):
        if store.advice:
            yield Finding("Languages", "warning", f"{store.name}: {store.advice}")


def _missed(status: PipelineStatus, settings: Settings) -> Iterator[str]:
    for job in PERIODIC_JOBS:
        run = status.jobs.get(job.task)
        if run is not None and _is_missed(status.at, run.started_at, job.every(settings)):
            yield job.task


def _is_missed(now: datetime, started_at: datetime, every: timedelta) -> bool:
    return now - started_at > max(_MISSED_PERIODS * every, timedelta(minutes=5))
