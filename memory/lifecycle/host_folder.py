"""The data folder of one of several hosts that share a database: the host's identity, and erasures in its files.

Rows are erased once, files on each host. An erasure waits at the step "hosts" until every host that has joined has
carried it out in its memory files and logs, and has searched all files of its folder. A host that is away does so when
it comes back; one that was away for so long that it was forgotten no longer knows what to look for, and keeps only what
the database has. Every step can be repeated: a host that is killed begins again.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import structlog
from filelock import FileLock, Timeout

from adapters.kept_secrets import share_installation_key
from memory.fragments import FragmentSet, HashKey, Matcher
from memory.lifecycle.erased_files import blank_logs, drop_unfounded_lines, redact_logs, rewrite_notebooks
from memory.lifecycle.receipts import Found, parts_in_rows, search_files
from memory.tombstones import ALL_AGENTS, SharedTombstones, adopt_key, hash_key, note_erased
from memory.upkeep.notebook import Notebooks, refresh
from reverie.clock import new_id
from reverie.errors import NotFound, StoreUnavailable, Unavailable
from storage.opened import hosts_of
from storage.private_files import write_private
from storage.stores import FileStamp, Stores
from storage.trust.hosts import HostRecord, HostReport

if TYPE_CHECKING:
    from storage.postgres.hosts import Hosts  # its module needs the driver of the database

_FILE: Final = "host.json"
_LOCK: Final = "host.lock"
# A host that joins only writes one file under the lock.
_LOCK_SECONDS: Final = 30.0
# How often a host looks for leftovers of an erasure, and removes them again.
_ROUNDS: Final = 3
# How long one run of the job waits for the other hosts; its next run goes on waiting.
_WAIT_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.2
# A running host reports every two seconds, except while it carries out an erasure.
_SILENT_SECONDS: Final = 60.0
# The file of the broker, if it runs here: the erasure's own steps remove it from there, and search it.
_OF_BROKER: Final = "broker/"

log = structlog.get_logger(__name__)


class Identity(msgspec.Struct, frozen=True):
    """The identity of a host in a database. `is_true` is false if its files may have what the database has lost."""

    id: str
    installation: str
    is_true: bool = True


# How long erasures wait for a host that is away. If it comes back within this time, it catches up on missed erasures.
AWAY_DAYS: Final = 30.0


@dataclass(frozen=True)
class HostFolder:
    """The data folder of this host, and the hosts that it shares its stores with.

    `notebooks` has the repositories of the folder, even if memory files are switched off.
    """

    stores: Stores
    hosts: Hosts
    notebooks: Notebooks
    now: Callable[[], int]

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.stores.data_dir

    @property
    def name(self) -> str:
        """The name of the host for people: the name of the machine and the path of its data folder."""
        return f"{socket.gethostname()}:{self.data.resolve()}"

    @cached_property
    def _key(self) -> HashKey:
        return hash_key(self.data)

    @cached_property
    def _tombstones(self) -> SharedTombstones:
        return SharedTombstones(self.data, self.hosts)

    def join(self) -> Identity:
        """Become one of the hosts, before anything is written to the folder; return who it is. Safe to repeat.

        Raises `StoreUnavailable`.
        """
        installation, known = self.hosts.installation(), self._identity()
        if known is not None and known.installation == installation and self.hosts.see(known.id):
            return known
        with self._joining():
            known = self._identity()  # another process may have joined meanwhile
            if known is None:
                identity = Identity(new_id(), installation)
            elif known.installation != installation:
                identity = Identity(new_id(), installation, is_true=False)
            elif self.hosts.see(known.id):
                return known
            else:
                log.warning("host_was_forgotten", host=self.name)
                identity = msgspec.structs.replace(known, is_true=False)
            self._write(identity)  # before it joins: after a kill in between, its files must not count as true
            self.hosts.join(identity.id, self.name)
            return identity

    def look(self, *, on_step: Callable[[], None] = lambda: None) -> dict[str, int]:
        """Carry out what waits for this folder; return counts. Only one process of a host may do this: see `leading`.

        A folder without files of workspaces and without logs does not join the hosts: there is nothing in it to erase,
        and if its container is gone for good, no erasure waits for it. `on_step` is called every few seconds at the
        most. Raises `StoreUnavailable`.
        """
        counts = Counter({"tombstones": self._tombstones.exchange()})
        if self._identity() is None and not self._holds_files():
            return dict(+counts)
        identity = self.join()
        deleted = self.stores.remove_foreign_folders()
        note_erased(self.data, [(name, ALL_AGENTS) for name in deleted])
        counts["folders"] = len(deleted) + self.stores.remove_deleted()
        if not identity.is_true:
            counts["histories"] = self._make_true(on_step)
            self._write(msgspec.structs.replace(identity, is_true=True))
        failed: StoreUnavailable | None = None
        for erasure_id in self.hosts.erasures_to_do(identity.id):
            try:
                self._carry_out(identity.id, erasure_id, on_step)
                counts["erasures"] += 1
            except StoreUnavailable as error:  # such as a damaged repository: it does not hold up the other erasures
                failed = failed or error
        if failed is not None:
            raise failed
        return dict(+counts)

    def _holds_files(self) -> bool:
        """Return whether the folder has files that are made from rows."""
        return any(next((self.data / name).glob("*"), None) is not None for name in ("workspaces", "logs", "deleted"))

    def note_error(self, error: str) -> None:
        """Tell the other hosts why this one cannot carry out erasures; an empty text says that it can again."""
        identity = self._identity()
        if identity is not None:
            self.hosts.set_error(identity.id, error)

    def refresh(self, seen: dict[str, FileStamp]) -> int:
        """Bring the memory files of stores that were written since up to date; return how many were changed.

        `seen` has the stamps of the stores at the last call; this call updates them. A repository that cannot be
        written does not stop the others: its error is raised at the end.
        """
        changed = 0
        failed: StoreUnavailable | None = None
        repositories = self.notebooks.require_repositories()
        for name in self.stores.all_names():
            stamp = self.stores.stamp(name)
            if stamp is None or seen.get(name) == stamp:
                continue
            with suppress(NotFound):
                store = self.stores.workspace(name, create=False)
                for agent in repositories.agents(name):
                    try:
                        changed += refresh(store, self.notebooks, agent, now=self.now()).commit is not None
                    except StoreUnavailable as error:
                        failed = failed or error
            seen[name] = stamp
        if failed is not None:
            raise failed
        return changed

    def wait_for_all(self, erasure_id: str, *, on_step: Callable[[], None]) -> None:
        """Wait until each host has carried out an erasure, this one included if it has joined.

        Raises `Unavailable` naming a host that has not, after some seconds.
        """
        for gone in self.hosts.forget_unseen(AWAY_DAYS):
            log.warning("host_forgotten", host=gone.name, days=AWAY_DAYS)
        self._tombstones.exchange()
        if self._identity() is not None:  # else nothing writes to this folder: a single command
            with leading(self.data) as is_leading:  # else another process of this host looks after its files
                if is_leading:
                    self.look(on_step=on_step)
        deadline = time.monotonic() + _WAIT_SECONDS
        while waiting := self.hosts.waited_for(erasure_id):
            first = max(waiting, key=lambda host: (bool(host.error), host.silent_seconds))
            if first.error or first.silent_seconds > _SILENT_SECONDS or time.monotonic() > deadline:
                raise Unavailable(_waits_for(first, len(waiting) - 1))
            on_step()
            time.sleep(_POLL_SECONDS)

    def reports_of_others(self, erasure_id: str) -> Sequence[HostReport]:
        """Return the reports of the other hosts on an erasure. This host searches its files once more at the end."""
        identity = self._identity()
        return [one for one in self.hosts.reports(erasure_id) if identity is None or one.host != identity.id]

    def drop_reports(self, erasure_id: str) -> None:
        """Delete what hosts have reported on an erasure, once its receipt is stored."""
        self.hosts.drop_reports(erasure_id)

    def _carry_out(self, host_id: str, erasure_id: str, on_step: Callable[[], None]) -> None:
        """Remove an erasure from the files of this host, search them, and report."""
        erasures = self.stores.erasures()
        erasure = erasures.find(erasure_id)
        if erasure is None:
            return
        wanted = FragmentSet.load(erasures.fragments(erasure_id))
        note_erased(self.data, [(name, ALL_AGENTS) for name in erasure.counts])
        histories = lines = 0
        leftovers: dict[str, int] = {}
        found = Found()
        for _ in range(_ROUNDS):
            windows = wanted.without_tokens()
            own = windows.without(parts_in_rows(self.stores, self._key, windows, on_block=on_step))
            quoted = Matcher(self._key, own)
            histories += rewrite_notebooks(
                self.stores, self.notebooks, erasure, quoted, now=self.now(), on_step=on_step
            )
            lines += redact_logs(self.data / "logs", self._key, own)
            found = search_files(self.data, self._key, wanted, on_block=on_step)
            leftovers = self._leftovers(found, on_step)
            if not leftovers:
                break
        report = HostReport(
            host=host_id,
            name=self.name,
            files=found.files,
            bytes=found.bytes,
            histories=histories,
            lines=lines,
            leftovers=leftovers,
        )
        self.hosts.report(erasure_id, report)
        log.info("erasure_carried_out", erasure=erasure_id, histories=histories, lines=lines, leftovers=len(leftovers))

    def _leftovers(self, found: Found, on_step: Callable[[], None]) -> dict[str, int]:
        explained = parts_in_rows(self.stores, self._key, found.parts, on_block=on_step)
        left = found.leftovers(explained)
        return {path: number for path, number in left.items() if not path.startswith(_OF_BROKER)}

    def _make_true(self, on_step: Callable[[], None]) -> int:
        """Keep in histories only what the database has, and blank all logs; return how many were rewritten."""
        repositories, rewritten = self.notebooks.require_repositories(), 0
        for name in self.stores.all_names():
            with suppress(NotFound):
                store = self.stores.workspace(name, create=False)
                for agent in repositories.agents(name):
                    rewritten += drop_unfounded_lines(
                        store, self.notebooks, agent, now=self.now(), quotes_in_message=lambda _: True
                    )
                    on_step()
        blank_logs(self.data / "logs")
        return rewritten

    @contextmanager
    def _joining(self) -> Iterator[None]:
        """Hold the lock of the host's identity."""
        with _locked(self.data / _LOCK, _LOCK_SECONDS) as is_held:
            if not is_held:
                raise StoreUnavailable(f"{self.data / _LOCK} is held by another process: try again later")
            yield

    def _identity(self) -> Identity | None:
        """Return the identity of this host; None if it has not joined yet or the file is damaged."""
        try:
            return msgspec.json.decode((self.data / _FILE).read_bytes(), type=Identity)
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError):
            return Identity(new_id(), "", is_true=False)
        except OSError as error:
            raise StoreUnavailable(f"{self.data / _FILE} cannot be read ({error}): check its permissions") from error

    def _write(self, identity: Identity) -> None:
        try:
            write_private(self.data / _FILE, msgspec.json.encode(identity))
        except OSError as error:
            raise StoreUnavailable(f"{self.data / _FILE} cannot be written ({error}): check the disk") from error


def _waits_for(host: HostRecord, more: int) -> str:
    others = f" (and {more} more)" if more else ""
    if host.error:
        return f"the host {host.name}{others} cannot remove it from its files: {host.error}"
    return (
        f"the host {host.name}{others} has not removed it from its files yet, and was last heard of"
        f" {host.silent_seconds:,.0f} s ago: it does so when Reverie runs there. If it is gone for good:"
        f" `reverie db hosts --forget {host.id}`"
    )


def share_keys(stores: Stores) -> None:
    """Make this host use the keys that all hosts share: to recognise what was erased, and to sign webhooks and runs.

    Call it before anything is hashed or signed. Raises `StoreUnavailable` and `StoreUnusable`.
    """
    hosts = hosts_of(stores)
    if hosts is None:
        return
    if adopt_key(stores.data_dir, hosts.share_key(hash_key(stores.data_dir).secret)):
        log.info("key_of_erasures_adopted")
    if share_installation_key(stores.data_dir, hosts.share_installation_key):
        log.info("key_of_installation_adopted")


def leading(data: Path) -> AbstractContextManager[bool]:
    """Yield whether this process is the one that looks after the host's files, until the end of the block."""
    return _locked(data / "run" / _LOCK, 0.0)


@contextmanager
def _locked(path: Path, wait_seconds: float) -> Iterator[bool]:
    """Yield whether this process got a lock; the kernel gives that of a process that has died to the next."""
    lock = FileLock(path, timeout=wait_seconds, mode=0o600)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        yield False
        return
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be used ({error}): check its permissions") from error
    try:
        yield True
    finally:
        lock.release()
