"""How the command line speaks: tables and lines for people, JSON for programs, one line for a failure."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

# Where nobody looks, a program reads: what is cut to 80 columns is lost for it.
console = Console(width=None if sys.stdout.isatty() else 240)
messages = Console(stderr=True)


def say(text: str = "") -> None:
    """A line for people, as it is."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """A value as JSON on standard output."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """A table for people; `empty` where there are no rows."""
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    if table.row_count:
        console.print(table, markup=False)
    else:
        say(empty)


def progress_bar(what: str) -> Progress:
    """A progress bar on standard error, shown on a terminal only."""
    return Progress(
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=messages,
        disable=not messages.is_terminal,
        transient=True,
    )


def when(micros_or_time: int | datetime | None) -> str:
    """A moment for people, to the second, in UTC."""
    if micros_or_time is None:
        return "-"
    moment = (
        datetime.fromtimestamp(micros_or_time / 1_000_000, UTC) if isinstance(micros_or_time, int) else micros_or_time
    )
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def shortened(text: str, characters: int = 80) -> str:
    """One line of a text, cut where it is longer."""
    line = " ".join(text.split())
    return line if len(line) <= characters else line[: characters - 1] + "…"


def size(count_bytes: float) -> str:
    """A number of bytes for people."""
    for unit in ("B", "KiB", "MiB"):
        if count_bytes < 1024:
            return f"{count_bytes:.0f} {unit}" if unit == "B" else f"{count_bytes:.1f} {unit}"
        count_bytes /= 1024
    return f"{count_bytes:.1f} GiB"
