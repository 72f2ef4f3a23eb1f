"""`reverie curation`: list, show and undo what jobs changed. These commands open the data folder."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec
import typer

from memory.memories.agent_memories import AgentMemories
from memory.upkeep.curation_logs import list_entries, show_entry, undo_all, undo_entry
from reverie.clock import to_micros
from reverie.errors import Conflict, NotFound, Rejected
from reverie.upkeep.curation_types import CurationChange, CurationEntry, Undone
from storage.upkeep.curation import CurationFilter
from worker.cli.application import Invocation, application, invocation
from worker.cli.output import AsJson, print_json, print_table, progress_bar, say, shortened, when

curation = typer.Typer(help="List and undo what jobs changed.", no_args_is_help=True)
application.add_typer(curation, name="curation")

_Job = Annotated[str | None, typer.Option(help="Only entries of this job, such as dream-sweep.")]
_Action = Annotated[str | None, typer.Option(help="Only entries of this action, such as merge.")]

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_AGO: Final = re.compile(r"(\d{1,6})([smhdw])")
# Stages to notify after an undo: memories to chunk again, chunks to embed with another model.
_STAGES: Final = ("chunk", "embed")


@curation.command("list")
def list_curation(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 50,
    offset: Annotated[int, typer.Option(min=0)] = 0,
    memory: Annotated[str | None, typer.Option(help="Only entries about this memory.")] = None,
    job: _Job = None,
    action: _Action = None,
    as_json: AsJson = False,
) -> None:
    """List what jobs changed, newest first. Ids that begin with account- are of the account tier."""
    command = invocation(context)
    matching = CurationFilter(memory=memory, job=job, action=action)
    found = list_entries(command.memories, matching, limit=limit, offset=offset)
    if as_json:
        print_json(found)
        return
    print_table(
        ("id", "at", "job", "action", "undone", "about", "why"),
        [
            (e.id, when(e.at), _job_of(e), e.action, when(e.undone_at) if e.undone_at else "-",
             shortened(_about(e), 44), shortened(e.why, 100))
            for e in found
        ],
        empty=_nothing_listed(command, some=bool(memory or job or action or offset)),
    )  # fmt: skip


@curation.command("show")
def show_curation(context: typer.Context, entry: str, as_json: AsJson = False) -> None:
    """Show an entry with the rows that it changed, before and after."""
    found = show_entry(invocation(context).memories, entry)
    if as_json:
        print_json(found)
        return
    say(f"{found.id}  {when(found.at)}  {_job_of(found)}  {found.action}: {found.why}")
    say(f"about {_about(found)}" + (f"; undone {when(found.undone_at)}" if found.undone_at else ""))
    for change in found.changes:
        _say_change(change)


@curation.command("undo")
def undo_curation(
    context: typer.Context,
    entries: Annotated[list[str] | None, typer.Argument(help="The ids of entries.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Undo all entries of the agent.")] = False,
    job: _Job = None,
    action: _Action = None,
    since: Annotated[str | None, typer.Option(help="Only entries since then: 2h, 3d, or a date and time.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Undo what jobs changed: entries by id, or all of a job, an action or a time, newest first."""
    command = invocation(context)
    several = everything or job is not None or action is not None or since is not None
    if bool(entries) == several:
        raise Rejected("name entries, or say which with --job, --action, --since or --all", field="entries")
    memories = command.memories
    now = command.runtime.now()
    if entries:
        done = _undo_each(memories, entries, now)
    else:
        moment = _moment(since, now) if since is not None else 0
        if not yes:
            typer.confirm(_question(command, job, action, since), abort=True, err=True)
        with progress_bar("entries") as bar:
            shown = bar.add_task("entries", total=None)
            done = undo_all(
                memories, CurationFilter(job=job, action=action, since=moment), now=now,
                progress=lambda done, total: bar.update(shown, completed=done, total=total),
            )  # fmt: skip
    _print_undone(command, memories, done, as_json=as_json)


def _undo_each(memories: AgentMemories, entries: list[str], now: int) -> Undone:
    undone: list[str] = []
    failed: dict[str, str] = {}
    for entry in dict.fromkeys(entries):
        try:
            undone.append(undo_entry(memories, entry, now=now)[1].id)
        except (Conflict, NotFound) as error:
            failed[entry] = str(error)
    return Undone(undone=undone, failed=failed)


def _print_undone(command: Invocation, memories: AgentMemories, done: Undone, *, as_json: bool) -> None:
    for store in memories.existing_stores() if done.undone else ():
        for stage in _STAGES:
            command.runtime.notify_stage(stage, store.name)
    if as_json:
        print_json(done)
    else:
        if done.undone or not done.failed:
            say(f"{len(done.undone)} undone." if done.undone else "There was nothing to undo.")
        for entry, why in done.failed.items():
            prefix = f"{entry} cannot be undone: "
            say(prefix + why.removeprefix(f"entry {prefix}"))
    raise typer.Exit(1 if done.failed else 0)


def _question(command: Invocation, job: str | None, action: str | None, since: str | None) -> str:
    parts = [f"by {job}" if job else "", f"({action})" if action else "", f"since {since}" if since else ""]
    what = " ".join(part for part in parts if part)
    return f"Undo all changes to the memories of agent {command.agent} {what}".rstrip() + "? (--yes does not ask)"


def _moment(since: str, now: int) -> int:
    """Return a time in microseconds, from a duration before now or a date and time. Raises `Rejected`."""
    ago = _AGO.fullmatch(since)
    if ago:
        return max(0, now - int(ago[1]) * _UNITS[ago[2]] * 1_000_000)
    try:
        moment = datetime.fromisoformat(since)
    except ValueError:
        raise Rejected(
            f"since is {since[:80]!r}; give a time like 90m, 2h or 3d, or a date and time", field="since"
        ) from None
    return to_micros(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


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
    return shortened(value if isinstance(value, str) else msgspec.json.encode(value).decode(), 100)


def _nothing_listed(command: Invocation, *, some: bool) -> str:
    where = f"agent {command.agent} in workspace {command.settings.workspace}"
    return f"No entry of {where} matches." if some else f"No job has changed memories of {where} yet."


def _job_of(entry: CurationEntry) -> str:
    return entry.job.removeprefix("reverie.").replace("_", "-")


def _about(entry: CurationEntry) -> str:
    named = ", ".join(entry.memories[:3]) + (f" and {len(entry.memories) - 3} more" if len(entry.memories) > 3 else "")
    return named or f"session {entry.session}"
