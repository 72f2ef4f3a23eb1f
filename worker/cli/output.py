"""How the command line speaks: tables and lines for people, JSON for programs, one line for a failure."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from reverie.errors import Rejected

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ExportFile = Annotated[Path | None, typer.Option("--output", "-o", help="A file; else standard output.")]

# Where nobody looks, a program reads: what is cut to 80 columns is lost for it.
console = Console(width=None if sys.stdout.isatty() else 240)
messages = Console(stderr=True)

# What was said by others must not steer the terminal: control characters are shown as pictures of themselves.
_PICTURES: Final = (
    {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"}
    | {0x7F: 0x2421}
    | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
)
# A last column with texts of more than this stands on a line of its own where the table is wider than the terminal.
_LONG_TEXT: Final = 16


def say(text: str = "") -> None:
    """A line for people, as it is."""
    console.print(_visible(text), markup=False, highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    """A value as JSON on standard output."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """A table for people; `empty` where there are no rows. Nothing is cut: an id is there to be copied.

    Where it is wider than the terminal, a last column of texts stands below the rest of its row.
    """
    shown = [[_visible(str(cell)) for cell in row] for row in rows]
    if not shown:
        say(empty)
        return
    widths = [max(map(cell_len, column)) for column in zip(columns, *shown, strict=True)]
    if sum(widths) + 2 * (len(widths) - 1) > console.width and widths[-1] > _LONG_TEXT:
        _print_rows(columns, shown, widths[:-1])
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in shown:
        table.add_row(*map(Text, row))
    console.print(table)


def _print_rows(columns: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int]) -> None:
    for row in (columns, *rows):
        cells = [set_cell_size(cell, width) for cell, width in zip(row, widths, strict=False)]
        line = Text("  ".join(cells).rstrip(), style="bold" if row is columns else "")
        console.print(line, soft_wrap=True)
        if row[-1]:
            console.print(Padding(Text(row[-1], style="bold" if row is columns else ""), (0, 0, 0, 4)))


def _visible(text: str) -> str:
    return text.translate(_PICTURES)


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


def counted(number: int, what: str) -> str:
    """So many of something, as "1 memory" and "3 memories"."""
    return f"1 {what}" if number == 1 else f"{number:,} {_plural(what)}"


def _plural(what: str) -> str:
    return f"{what[:-1]}ies" if what.endswith("ory") else f"{what}s"


def write_export(document: Any, output: Path | None, what: str, number: int, *, as_json: bool) -> None:
    """An export that holds so many of something: into a file, which is told, or to standard output.

    Raises `Rejected` where the file cannot be written.
    """
    if output is None:
        print_json(document)
        return
    try:
        output.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2))
    except OSError as error:
        raise Rejected(f"{output} cannot be written: {error.strerror}", field="output") from error
    if as_json:
        print_json({_plural(what): number})
    else:
        say(f"{counted(number, what)} written to {output}")


def size(count_bytes: float) -> str:
    """A number of bytes for people."""
    for unit in ("B", "KiB", "MiB"):
        if count_bytes < 1024:
            return f"{count_bytes:.0f} {unit}" if unit == "B" else f"{count_bytes:.1f} {unit}"
        count_bytes /= 1024
    return f"{count_bytes:.1f} GiB"
