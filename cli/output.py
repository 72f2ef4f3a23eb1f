"""Output, questions and input of commands: tables and lines for people, JSON with `--json`, progress bars, files."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from reverie.clock import from_micros
from reverie.counts import counted, plural
from reverie.errors import NotFound, Rejected

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
ExportFile = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="Write to this file. Default, and `-`: standard output.",
        callback=lambda path: None if path == Path("-") else path,
    ),
]

# Stored text must not control the terminal, nor look like a line or a column of the output. So control characters, and
# others that end a line or reverse the direction of text, are printed as visible symbols.
_UNSEEN: Final = (*range(0x80, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A), 0xFEFF)
_VISIBLE_SYMBOLS: Final = (
    {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"}
    | {0x7F: 0x2421}
    | dict.fromkeys(_UNSEEN, 0xFFFD)
)
_IN_CELLS: Final = _VISIBLE_SYMBOLS | {ord("\n"): 0x240A, ord("\t"): 0x2409}
# JSON escapes only those below U+0020 itself.
_IN_JSON: Final = {code: f"\\u{code:04x}" for code in (0x7F, *_UNSEEN)}
# In a table wider than the terminal, a last column wider than this is printed on lines of its own.
_LONG_TEXT: Final = 16


# Rich is imported only for tables and progress bars: the import takes a third of the time of a command.
@cache
def console() -> Console:
    """Return the console of standard output."""
    from rich.console import Console

    # Output that does not go to a terminal is read by a program, to which text wrapped at 80 columns would be lost.
    return Console(width=None if sys.stdout.isatty() else 240)


def say(text: str = "") -> None:
    """Print a line of text to standard output, control characters made visible."""
    sys.stdout.write(_visible(text) + "\n")


def say_beside(label: str, *texts: str) -> None:
    """Print texts below one another beside a label, wrapped between words at the width of a terminal."""
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    width = max(_LONG_TEXT, columns - len(label))
    for text in filter(None, texts):
        for line in textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False):
            say(label + line)
            label = " " * len(label)


def note(text: str) -> None:
    """Print a line to standard error: a note for the person at the terminal that is no part of the output."""
    sys.stderr.write(_visible(text) + "\n")


def print_json(value: Any) -> None:
    """Print a value as JSON to standard output."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode().translate(_IN_JSON) + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str | Callable[[], str]) -> None:
    """Print a table. Without rows, print `empty`: a text, or a function that returns one.

    No cell is truncated, so that ids can be copied; None is a dash. When the table is wider than the terminal, a long
    last column is printed below the rest of its row.
    """
    shown = [[("-" if cell is None else str(cell)).translate(_IN_CELLS) for cell in row] for row in rows]
    if not shown:
        say(empty if isinstance(empty, str) else empty())
        return
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    widths = [max(map(cell_len, column)) for column in zip(columns, *shown, strict=True)]
    if sum(widths) + 2 * (len(widths) - 1) > console().width and widths[-1] > _LONG_TEXT:
        _print_rows(columns, shown, widths[:-1])
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in shown:
        table.add_row(*map(Text, row))
    console().print(table)


def _print_rows(columns: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int]) -> None:
    from rich.cells import set_cell_size
    from rich.padding import Padding
    from rich.text import Text

    for row in (columns, *rows):
        cells = [set_cell_size(cell, width) for cell, width in zip(row, widths, strict=False)]
        for line in _lines_of(cells, console().width):
            console().print(Text(line, style="bold" if row is columns else ""), soft_wrap=True)
        if row[-1]:
            console().print(Padding(Text(row[-1], style="bold" if row is columns else ""), (0, 0, 0, 4)))


def _lines_of(cells: Sequence[str], width: int) -> list[str]:
    """Join the cells of a row in as many lines as a terminal of this width needs, those after the first indented."""
    from rich.cells import cell_len

    lines = [cells[0]]
    for cell in cells[1:]:
        joined = f"{lines[-1]}  {cell}"
        if cell_len(joined) <= width:
            lines[-1] = joined
        else:
            lines.append(f"    {cell}")
    return [line.rstrip() for line in lines]


def print_result(value: Any, as_json: bool, text: str | Callable[[], object]) -> None:
    """Print a value as JSON, or a line of text about it, or what a function prints."""
    if as_json:
        print_json(value)
    elif isinstance(text, str):
        say(text)
    else:
        text()


def print_struct(struct: msgspec.Struct, as_json: bool) -> None:
    """Print a struct as JSON, or with each field on a line."""
    print_result(struct, as_json, lambda: print_fields(msgspec.to_builtins(struct)))


def print_fields(fields: dict[str, Any]) -> None:
    """Print each field on a line, with lists and objects as JSON."""
    width = max(map(len, fields))
    for name, value in fields.items():
        text = encoded(value) if isinstance(value, (dict, list)) else str(value)
        # Lines after the first are indented, so that none passes for another field.
        say(f"{name:>{width}}: " + text.replace("\n", "\n" + " " * (width + 2)))


def confirm(question: str, yes: bool) -> None:
    """Ask on standard error before something is deleted or undone; `yes` skips the question."""
    if yes:
        return
    try:
        typer.confirm(f"{_visible(question)} (--yes skips this question)", abort=True, err=True)
    except typer.Abort as aborted:
        if isinstance(aborted.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise


def print_deleted(deleted: bool, as_json: bool, *, missing: NotFound) -> None:
    """Print that something was deleted. Raises `missing` when there was nothing."""
    if not deleted:
        raise missing
    print_result({"deleted": True}, as_json, "Deleted.")


def encoded(value: object) -> str:
    """Return a value as JSON on one line."""
    return msgspec.json.encode(value).decode()


def _visible(text: str) -> str:
    return text.translate(_VISIBLE_SYMBOLS)


def progress_bar(label: str) -> Progress:
    """Return a progress bar on standard error, shown on a terminal only."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    errors = Console(stderr=True)
    return Progress(
        TextColumn(label),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=errors,
        disable=not errors.is_terminal,
        transient=True,
    )


@contextmanager
def shown_progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar; yield the function that is told how much is done, and of how much."""
    with progress_bar(label) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@dataclass(slots=True)
class StoreProgress:
    """The store that a command works on and how far it has come, to be printed after Ctrl-C."""

    store: str = ""
    done: int = 0
    total: int = 0


def when(micros_or_time: int | datetime | None) -> str:
    """Return a time in UTC as text, to the second."""
    if micros_or_time is None:
        return "-"
    if isinstance(micros_or_time, int):
        micros_or_time = from_micros(micros_or_time)
    return micros_or_time.strftime("%Y-%m-%d %H:%M:%S")


def day_of(moment: datetime) -> str:
    """Return a date in UTC as people write it, such as "3 May 2023"."""
    day = moment.astimezone(UTC)
    return f"{day.day} {day:%b} {day.year}"


def period(since: datetime | None, until: datetime | None) -> str:
    """Return from when to when something held: "since 3 May 2023", or "3 May 2023 until 2 Jun 2023"."""
    if since is None or until is None:
        return "-" if since is None else f"since {day_of(since)}"
    return f"{day_of(since)} until {day_of(until)}"


def shortened(text: str, characters: int = 80) -> str:
    """Return a text as one line of at most this many characters."""
    line = " ".join(text.split())
    return line if len(line) <= characters else line[: characters - 1] + "…"


def write_export(document: Any, output: Path | None, noun: str, number: int, *, as_json: bool) -> None:
    """Write an export to a file, and print how many items it contains; or print it to standard output.

    Raises `Rejected` when the file cannot be written.
    """
    if output is None:
        print_json(document)
        return
    from reverie.trust.export_files import private_file

    with private_file(output) as file:
        file.write(msgspec.json.format(msgspec.json.encode(document), indent=2))
    print_result({plural(noun): number}, as_json, f"{counted(number, noun)} written to {output}")


def size(count_bytes: float) -> str:
    """Return a number of bytes as text, such as 1.5 MiB."""
    for unit in ("B", "KiB", "MiB"):
        if count_bytes < 1024:
            return f"{count_bytes:.0f} {unit}" if unit == "B" else f"{count_bytes:.1f} {unit}"
        count_bytes /= 1024
    return f"{count_bytes:.1f} GiB"


def input_of(path: Path) -> bytes:
    """Return the content of a file, or of standard input for `-`. Raises `Rejected`."""
    return sys.stdin.buffer.read() if str(path) == "-" else bytes_of(path)


def bytes_of(path: Path, limit: int = -1) -> bytes:
    """Return the content of a file, at most the first `limit` bytes. Raises `Rejected`."""
    try:
        with path.open("rb") as file:
            return file.read(limit)
    except OSError as error:
        raise Rejected(f"{path} cannot be read: {error.strerror}", field="file") from error
