"""Searches files and rows for erased texts, and writes the receipt of an erasure.

Every file of the data folder is searched byte by byte. Fragments that a live row contains are no leftovers.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

import memory
import reverie
from memory.conversion import convert
from memory.fragments import FORMS, WIDE, FragmentSet, HashKey, Matcher
from memory.lifecycle.erasure_rows import erased_name
from reverie.clock import from_micros, rfc3339
from reverie.counts import counted
from reverie.errors import NotFound
from reverie.trust.calls import ErasureReceipt, Remaining, Searched
from storage.lifecycle.erasures import KEPT_IN_ACCOUNT, ErasureRecord
from storage.stores import Stores
from storage.trust.hosts import HostReport

_BACKUPS: Final = (
    "backups and copies of the data folder made before {at}: the tombstone of this erasure is applied when `reverie"
    " restore` restores one, and not when files are copied back"
)
_EXPORTS: Final = "exports that were written to files outside the data folder"
_SENT: Final = "webhooks, notifications and tasks that were sent before: ask their receivers to erase"
_HOST: Final = (
    "the data folder of the host {name}, which was away for too long and was forgotten: it removes old versions of its"
    " memory files, and its logs, when Reverie starts there again"
)
_READ: Final = "what agents have read from the memory before: their own contexts, logs and conversations"


def receipt_of(
    erasure: ErasureRecord,
    found: Found,
    wanted: FragmentSet,
    explained: FragmentSet,
    *,
    remote: tuple[str, ...],
    hosts: Sequence[HostReport] = (),
    now: int,
) -> dict[str, Any]:
    """Return the receipt of an erasure as JSON values; `remote` names services that have seen content.

    `hosts` are the reports of the other hosts that share the stores, and of this host if it is not done.
    """
    remains = [
        Remaining(what=_BACKUPS.format(at=rfc3339(now)), responsible="operator"),
        Remaining(what=_EXPORTS, responsible="whoever made them"),
        Remaining(what=_SENT, responsible="operator and the receivers"),
        Remaining(what=_READ, responsible="operator of the agents"),
        *(Remaining(what=_HOST.format(name=host.name), responsible="operator") for host in hosts if not host.done),
        *_outside_limits(erasure),
        *(Remaining(what=f"requests sent to {service}", responsible="operator of that service") for service in remote),
    ]
    receipt = convert(
        erasure,
        ErasureReceipt,
        erasure=erasure.id,
        finished_at=from_micros(now),
        removed={
            _place_name(place, erasure): dict(sorted(counts.items()))
            for place, counts in sorted(erasure.counts.items())
            if place != KEPT_IN_ACCOUNT
        },
        searched=Searched(
            files=found.files + sum(host.files for host in hosts),
            bytes=found.bytes + sum(host.bytes for host in hosts),
            forms=list(FORMS),
            parts=len(wanted),
            explained=len(explained),
            too_short=wanted.too_short,
        ),
        leftovers=found.leftovers(explained)
        | {f"{host.name}: {path}": number for host in hosts for path, number in host.leftovers.items()},
        hosts=[host.name for host in hosts if host.done],
        remains=remains,
    )
    values: dict[str, Any] = msgspec.to_builtins(receipt)
    return values


def _place_name(place: str, erasure: ErasureRecord) -> str:
    """Return the name of a place; an erased workspace is named by the hash."""
    store, space, rest = place.partition(" ")
    is_erased = erasure.kind == "workspace" and store == erasure.workspace
    return f"{erased_name(erasure.target_hash)}{space}{rest}" if is_erased else place


def _outside_limits(erasure: ErasureRecord) -> Iterator[Remaining]:
    """Yield what is left because the erasure was limited to an agent or a workspace."""
    who = f"this {erasure.kind}"
    asker = "whoever asked for this erasure"
    kept = erasure.counts.get(KEPT_IN_ACCOUNT, {}).get("memories", 0)
    if kept:
        what = f"{counted(kept, 'memory')} of {who} in the account"
        why = f"they did not come from the workspace {erasure.workspace}: an erasure without a workspace removes them"
        yield Remaining(what=f"{what}: {why}", responsible=asker)
    if erasure.workspace is not None and erasure.kind in ("user", "agent"):
        what = f"what other workspaces have of {who}: this erasure was limited to the workspace {erasure.workspace}"
        yield Remaining(what=what, responsible=asker)
    if erasure.agent is not None and erasure.kind == "user":
        what = f"what other agents have of {who}: this erasure was limited to one agent"
        yield Remaining(what=what, responsible=asker)


_BLOCK_BYTES: Final = 1 << 20
# SQLite's shared memory has page numbers only. Nor may this process open it: closing a file drops all locks that the
# process holds on it. SQLite 3.51 and later stand that for a database, but only by a lock on its shared memory.
_SKIPPED: Final = ("-shm",)


@dataclass(slots=True)
class Found:
    """What was searched, and the fragments that each file contains, by its path in the data folder."""

    files: int = 0
    bytes: int = 0
    hits: dict[str, FragmentSet] = field(default_factory=dict)

    @property
    def parts(self) -> FragmentSet:
        """The windows and tokens that were found in any file."""
        found = FragmentSet()
        for hits in self.hits.values():
            found.add(hits)
        return found

    def leftovers(self, explained: FragmentSet) -> dict[str, int]:
        """Return for each file how many of its erased fragments no live row contains."""
        left = {path: len(found.without(explained)) for path, found in self.hits.items()}
        return {path: number for path, number in left.items() if number}


def search_files(data: Path, key: HashKey, wanted: FragmentSet, *, on_block: Callable[[], None]) -> Found:
    """Search all files below a folder, also in git's compressed objects; `on_block` is called after each megabyte.

    Sockets are left out, and so are files that disappear meanwhile.
    """
    found, matcher = Found(), Matcher(key, wanted)
    for path in _files(data):
        hits = FragmentSet()
        try:
            for block in _blocks(path):
                hits.add(matcher.found_in(block))
                found.bytes += len(block)
                on_block()
        except FileNotFoundError:
            continue
        found.files += 1
        if len(hits):
            found.hits[str(path.relative_to(data))] = hits
    return found


def _files(data: Path) -> Iterator[Path]:
    own = data / "run"  # it has addresses and process ids; scratch folders below it are searched
    for path in sorted(data.rglob("*")):
        if path.is_file() and not path.is_symlink() and not path.name.endswith(_SKIPPED) and path.parent != own:
            yield path


def _blocks(path: Path) -> Iterator[bytes]:
    """Yield a file in blocks that overlap by a window; for an object of git, its decompressed content follows."""
    with path.open("rb") as file:
        before = b""
        while block := file.read(_BLOCK_BYTES):
            yield before + block
            before = (before + block)[-WIDE + 1 :]
    if "objects" in path.parts:
        yield from _decompressed(path.read_bytes())


def _decompressed(raw: bytes) -> Iterator[bytes]:
    """Yield every zlib stream in an object or a pack of git, wherever it begins; a delta holds its own text."""
    at = 0
    while at < len(raw):
        at = raw.find(b"\x78", at)
        if at < 0:
            return
        stream = zlib.decompressobj()
        try:
            yield stream.decompress(raw[at:])
        except zlib.error:
            at += 1
            continue
        at = len(raw) - len(stream.unused_data) if stream.eof else at + 1


# Names in sources, and texts without a blank: what Reverie itself writes into files.
_OWN_NAMES: Final = re.compile(rb"\b[A-Za-z_]\w{5,14}(?=[=(])|[\"'][a-z0-9_.:/-]{6,15}[\"']|CREATE [^;]*")
_PACKAGES: Final = ("adapters", "memory", "server", "storage", "worker")


def parts_in_rows(stores: Stores, key: HashKey, wanted: FragmentSet, *, on_block: Callable[[], None]) -> FragmentSet:
    """Return the fragments that rows of any store contain; `on_block` is called after each megabyte and each store.

    Tokens, which have fewer than 16 bytes, are searched in all tables, also within longer words: full-text indexes may
    store only a word's end.
    """
    found, matcher, tokens = FragmentSet(), Matcher(key, wanted.without_tokens()), FragmentSet(tokens=wanted.tokens)
    if not len(wanted):
        return found
    token_matcher = Matcher(key, tokens)
    for name in stores.all_names():
        with suppress(NotFound), stores.workspace(name, create=False).reading() as tx:
            for block in tx.stored_texts.blocks():
                found.add(matcher.found_in(block))
                on_block()
            for block in tx.stored_texts.blocks(everything=True) if len(tokens) else ():
                found.add(token_matcher.tokens_within(block))
                on_block()
        on_block()
    if len(tokens):
        found.add(token_matcher.found_in(_own_names()))
    return found


@cache
def _own_names() -> bytes:
    """Return the names and short texts in Reverie's sources: logs and databases are full of them."""
    beside = Path(memory.__file__).parents[1]
    folders = [Path(reverie.__file__).parent, *(beside / name for name in _PACKAGES)]
    files = sorted(file for folder in folders for kind in ("*.py", "*.sql") for file in folder.rglob(kind))
    return b"\0".join({name for file in files for name in _OWN_NAMES.findall(file.read_bytes())})
