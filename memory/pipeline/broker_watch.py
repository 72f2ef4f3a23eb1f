"""Notices that the broker came back without its content, and remembers it for the status.

The broker holds an id that was made up when a sweep first found it empty. A file in the data folder remembers the id:
if the broker has another one, it was flushed, replaced, or has lost its file. What was stored is not affected.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from adapters.broker.inbox import WorkerInbox
from reverie.clock import from_micros, rfc3339
from reverie.counts import counted

_SHOWN_MICROS: Final = 24 * 3_600 * 1_000_000


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """The broker as last seen. `items` waited in it then; times are in microseconds, 0 for never."""

    id: str
    items: int
    seen_at: int
    lost_at: int = 0
    lost_items: int = 0
    lost_seen_at: int = 0


def watch_broker(inbox: WorkerInbox, data: Path, *, now: int) -> str:
    """Compare the broker with the one last seen; return what was lost, an empty text if nothing was.

    Raises `Unavailable` without a broker.
    """
    found, items = inbox.identity(), inbox.totals().items
    known = _read(data)
    lost = known is not None and known.id != found
    state = _Known(
        id=found,
        items=items,
        seen_at=now,
        lost_at=now if lost else known.lost_at if known else 0,
        lost_items=known.items if lost and known else known.lost_items if known else 0,
        lost_seen_at=known.seen_at if lost and known else known.lost_seen_at if known else 0,
    )
    path = _path(data)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}")
    unfinished.write_bytes(msgspec.json.encode(state))
    unfinished.replace(path)
    return _line(state) if lost else ""


def lost_lines(data: Path, *, now: int) -> list[str]:
    """Return what was lost with the broker's content within the last day, as a line for the status."""
    known = _read(data)
    return [_line(known)] if known is not None and 0 <= now - known.lost_at < _SHOWN_MICROS else []


def _line(known: _Known) -> str:
    return (
        f"the broker has lost its content, noticed at {rfc3339(known.lost_at)}: it was flushed, replaced or started"
        " without its file. Everything stored is there. What was accepted and not stored yet is lost:"
        f" {counted(known.lost_items, 'message')} waited at {from_micros(known.lost_seen_at):%H:%M:%S} UTC. Agents that"
        " waited for `stored` have sent theirs again; others must"
    )


def _read(data: Path) -> _Known | None:
    try:
        return msgspec.json.decode(_path(data).read_bytes(), type=_Known)
    except (OSError, ValueError, RecursionError):
        return None


def _path(data: Path) -> Path:
    return data / "run" / "broker.json"
