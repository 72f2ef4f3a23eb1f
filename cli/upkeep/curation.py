"""`reverie curation`: list, show and undo what jobs changed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer
from msgspec import Meta

from cli.application import Invocation, application, invocation
from cli.options import takes
from cli.output import (
    AsJson,
    Yes,
    confirm,
    encoded,
    print_json,
    print_list,
    say,
    shortened,
    when,
)
from reverie.calls import Call
from reverie.clock import from_micros, now_micros
from reverie.errors import Conflict, NotFound, Rejected
from reverie.upkeep.calls import GetCurationEntry, ListCuration, Undo, UndoAll
from reverie.upkeep.curation_types import CurationChange, CurationEntry, Undone

curation = typer.Typer(help="List and undo what jobs changed.", no_args_is_help=True)
application.add_typer(curation, name="curation")

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_DURATION: Final = re.compile(r"(\d{1,6})([smhdw])")


class _UndoEntries(Call[Undone], frozen=True):
    """Undo several entries. Only the command line has this call; clients undo them one by one."""

    entries: Annotated[Sequence[str], Meta(description="The ids of entries.")]


def _time_since(text: str) -> datetime:
    """Return a time given as a duration before now, or as a date and time. Raises `Rejected`."""
    duration = _DURATION.fullmatch(text)
    if duration:
        return from_micros(max(0, now_micros() - int(duration[1]) * _UNITS[duration[2]] * 1_000_000))
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise Rejected(
            f"since is {text[:80]!r}; give a time like 90m, 2h or 3d, or a date and time", field="since"
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


@curation.command("list")
@takes(ListCuration)
def list_curation(context: typer.Context, call: ListCuration, as_json: AsJson = False) -> None:
    """List what jobs changed, newest first. Ids of entries about the account tier begin with account-."""
    command = invocation(context)
    entries = command.send(call).entries
    print_list(
        entries,
        as_json,
        ("id", "at", "job", "action", "undone", "about", "why"),
        (
            (e.id, when(e.at), _job_of(e), e.action, when(e.undone_at), shortened(_about(e), 44), shortened(e.why, 100))
            for e in entries
        ),
        empty=_empty_text(command, call),
    )


@curation.command("show")
@takes(GetCurationEntry, arguments=("entry",))
def show_curation(context: typer.Context, call: GetCurationEntry, as_json: AsJson = False) -> None:
    """Show an entry with the rows that it changed, before and after."""
    entry = invocation(context).send(call)
    if as_json:
        print_json(entry)
        return
    say(f"{entry.id}  {when(entry.at)}  {_job_of(entry)}  {entry.action}: {entry.why}")
    say(f"about {_about(entry)}" + (f"; undone {when(entry.undone_at)}" if entry.undone_at else ""))
    for change in entry.changes:
        _say_change(change)


@curation.command("undo")
@takes(
    _UndoEntries,
    UndoAll,
    arguments=("entries",),
    options={"everything": "--all"},
    helps={
        "since": "Only entries since this time: 2h, 3d, or a date and time.",
        "everything": "Undo all entries of the agent.",
    },
    parsers={"since": _time_since},
    usage="name entries, or select them with --job, --action, --since or --all",
)
def undo_curation(
    context: typer.Context, call: _UndoEntries | UndoAll, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Undo what jobs changed: entries by id, or all of a job, an action or a time, newest first."""
    command = invocation(context)
    if isinstance(call, UndoAll):
        confirm(_question(command, call), yes)
        result = command.send(call)
    else:
        result = _undo_each(command, call.entries)
    _print_undone(result, as_json=as_json)


def _undo_each(command: Invocation, entries: Sequence[str]) -> Undone:
    undone: list[str] = []
    failed: dict[str, str] = {}
    for entry in dict.fromkeys(entries):
        try:
            undone.append(command.send(Undo(entry)).id)
        except (Conflict, NotFound) as error:
            failed[entry] = str(error)
    return Undone(undone=undone, failed=failed)


def _print_undone(result: Undone, *, as_json: bool) -> None:
    if as_json:
        print_json(result)
    else:
        if result.undone or not result.failed:
            say(f"{len(result.undone)} undone." if result.undone else "There was nothing to undo.")
        for entry, error_text in result.failed.items():
            prefix = f"{entry} cannot be undone: "
            say(prefix + error_text.removeprefix(f"entry {prefix}"))
    raise typer.Exit(1 if result.failed else 0)


def _question(command: Invocation, call: UndoAll) -> str:
    parts = [
        f"Undo all changes to the memories of agent {command.agent}",
        f"by {call.job}" if call.job else "",
        f"({call.action})" if call.action else "",
        f"since {when(call.since)} UTC" if call.since else "",
    ]
    return " ".join(filter(None, parts)) + "?"


def _say_change(change: CurationChange) -> None:
    name = (change.after or change.before or {}).get("id", "")
    if change.before is None or change.after is None:
        say(f"{change.table} {name} {'made' if change.before is None else 'removed'}:")
        for column, value in (change.after or change.before or {}).items():
            if value not in (None, "", "[]", 0):
                say(f"    {column}: {_value(value)}")
        return
    different = [column for column in change.after if change.before.get(column) != change.after[column]]
    if different:
        say(f"{change.table} {name} changed:")
    for column in different:
        say(f"    {column}: {_value(change.before.get(column))} -> {_value(change.after[column])}")


def _value(value: Any) -> str:
    return shortened(value if isinstance(value, str) else encoded(value), 100)


def _empty_text(command: Invocation, call: ListCuration) -> str:
    agent = f"agent {command.agent} in workspace {command.workspace}"
    if call.memory or call.job or call.action or call.offset:
        return f"No entry of {agent} matches."
    return f"No job has changed memories of {agent} yet."


def _job_of(entry: CurationEntry) -> str:
    return entry.job.removeprefix("reverie.").replace("_", "-")


def _about(entry: CurationEntry) -> str:
    ids = ", ".join(entry.memories[:3]) + (f" and {len(entry.memories) - 3} more" if len(entry.memories) > 3 else "")
    return ids or f"session {entry.session}"
