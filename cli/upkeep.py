"""`reverie jobs`, `run`, `curation`, and the memory files: what jobs do, what they changed, and how to undo it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import typer
from msgspec import Meta
from msgspec.structs import replace

from cli.application import Invocation
from cli.groups import Group, Row, root
from cli.options import span, time_since
from cli.output import AsJson, Yes, confirm, encoded, note, print_json, print_table, say, shortened, when
from reverie import upkeep
from reverie.calls import Call
from reverie.contract import job_name
from reverie.counts import counted, counts_text
from reverie.errors import Conflict, NotFound

# The keys of a job's counts under which it reports on each store.
_BY_STORE: Final = ("stores", "workspaces")

curation = Group("curation")


@root.lists(
    "jobs",
    upkeep.ListJobs,
    ("job", "every", "last run", "dry run", "limited by", "what it does"),
    none="There are no jobs.",
)
def _job_row(job: upkeep.Job) -> Row:
    """List the periodic jobs with their last runs; `reverie run` runs one now."""
    return (
        job.name,
        span(job.every_seconds),
        when(job.last_run.started_at if job.last_run else None),
        "yes" if job.dry_run else "-",
        ", ".join(f"--{limit}" for limit in job.limits) or "-",
        job.description,
    )


@root.command("run", upkeep.RunJob, arguments=("job",), leave_out=("agent", "workspace"))
def run(command: Invocation, call: upkeep.RunJob, as_json: AsJson = False) -> None:
    """Run a periodic job now, in this process: of all agents, unless --agent or --workspace is given."""
    command.target.existing_data()
    limited = replace(call, agent=command.flags.get("agent"), workspace=command.flags.get("workspace"))
    run_job([limited], command.answer, as_json=as_json)


def run_job(
    calls: Sequence[upkeep.RunJob], answer: Callable[[upkeep.RunJob], upkeep.JobReport], *, as_json: bool
) -> None:
    """Run a job by each of several calls, until Ctrl-C, and print their counts together."""
    call = calls[0]
    try:
        report = _summed([answer(one) for one in calls])
    except KeyboardInterrupt:
        note("reverie: interrupted: finished work is kept, and the next run does the rest")
        raise typer.Exit(130) from None
    counts = report.counts
    if as_json:
        print_json({**counts, "planned": report.planned} if call.dry_run else counts)
    else:
        _print_counts(counts, dry_run=call.dry_run)
        if report.planned:
            say()
            rows = [(p.store, p.agent, p.action, p.about, shortened(p.text)) for p in report.planned]
            print_table(("store", "agent", "would", "about", "what"), rows, empty="")
    if counts.get("held_elsewhere"):
        note(f"reverie: note: another instance of {call.job} is running there: run it again later")


def _summed(reports: Sequence[upkeep.JobReport]) -> upkeep.JobReport:
    """Return the report on all of these runs."""
    counts: dict[str, Any] = {}
    for name, value in (item for report in reports for item in report.counts.items()):
        counts[name] = {**counts.get(name, {}), **value} if isinstance(value, dict) else counts.get(name, 0) + value
    return replace(reports[0], counts=counts, planned=[one for report in reports for one in report.planned])


def _print_counts(counts: dict[str, Any], *, dry_run: bool) -> None:
    """Print the counts of a job, in total and for each store."""
    stores = {name: line for key in _BY_STORE for name, line in counts.get(key, {}).items()}
    totals = {name: value for name, value in counts.items() if name not in _BY_STORE}
    if not stores and not totals.keys() - {"seconds"}:
        say("Nothing to do.")
        return
    if dry_run:
        say("Dry run: nothing was changed. Without --dry-run the job would do this:")
    rows = [(name, value if isinstance(value, (int, float)) else _text(value)) for name, value in totals.items()]
    if rows:
        print_table(("count", "value"), rows, empty="")
    if stores:
        if rows:
            say()
        print_table(("store", "result"), [(name, _counts_text(line)) for name, line in stores.items()], empty="")


def _counts_text(line: dict[str, Any]) -> str:
    """Return the counts of one store as text, without those that are 0."""
    parts = (
        counts_text({name: value}) if isinstance(value, (int, float)) else f"{name}: {_text(value)}"
        for name, value in line.items()
        if value
    )
    return ", ".join(parts) or "nothing"


def _text(value: object) -> str:
    return value if isinstance(value, str) else encoded(value)


class _UndoEntries(Call[upkeep.Undone], frozen=True):
    """Undo several entries. Only the command line has this call; clients undo them one by one."""

    entries: Annotated[Sequence[str], Meta(description="The ids of entries.")]


def _empty_text(call: upkeep.ListCuration) -> str:
    of_agent = "agent {agent} in workspace {workspace}"
    if call.memory or call.job or call.action or call.offset:
        return f"No entry of {of_agent} matches."
    return f"No job has changed memories of {of_agent} yet."


@curation.lists("list", upkeep.ListCuration, ("id", "at", "job", "action", "undone", "about", "why"), none=_empty_text)
def _entry_row(entry: upkeep.CurationEntry) -> Row:
    """List what jobs changed, newest first. Ids of entries about the account tier begin with account-."""
    about, why = shortened(_about(entry), 44), shortened(entry.why, 100)
    return entry.id, when(entry.at), _job_of(entry), entry.action, when(entry.undone_at), about, why


@curation.says("show", upkeep.GetCurationEntry, arguments=("entry",))
def _show_entry(entry: upkeep.CurationEntry) -> None:
    """Show an entry with the rows that it changed, before and after."""
    say(f"{entry.id}  {when(entry.at)}  {_job_of(entry)}  {entry.action}: {entry.why}")
    say(f"about {_about(entry)}" + (f"; undone {when(entry.undone_at)}" if entry.undone_at else ""))
    for change in entry.changes:
        _say_change(change)


@curation.lists(
    "runs",
    upkeep.ListCurationRuns,
    ("run", "at", "what it did", "to read", "sensitive", "such as"),
    none="No job has changed memories of agent {agent} in workspace {workspace} yet.",
)
def _run_row(one: upkeep.CurationRun) -> Row:
    """List the runs of jobs that changed memories, newest first, each as one change."""
    texts = "; ".join(entry.after or entry.before or entry.why for entry in one.entries)
    return one.id, when(one.at), one.summary, one.open or "-", one.due or "-", shortened(texts, 100)


@curation.says("run", upkeep.GetCurationRun, arguments=("run",))
def _show_run(one: upkeep.CurationRun) -> None:
    """Show what one run changed, line by line, with the texts before and after."""
    say(f"{one.id}  {when(one.at)}  {one.summary}" + (f"; {one.open} to read" if one.open else ""))
    for entry in one.entries:
        say_line(entry)
    if len(one.entries) < one.lines:
        say(f"({len(one.entries):,} of {counted(one.lines, 'line')}: see --limit and --offset)")


def say_line(entry: upkeep.CurationEntry) -> None:
    """Print an entry as a line of its run: what happened, and the texts before and after."""
    state = "undone" if entry.undone_at else "accepted" if entry.accepted_at else entry.sensitive or ""
    say(f"{entry.id}  {entry.effect}{f' [{state}]' if state else ''}: {shortened(entry.why, 100)}")
    for sign, text in (("-", entry.before), ("+", entry.after)):
        if text:
            say(f"    {sign} {shortened(text, 200)}")


@curation.says("accept", upkeep.AcceptChanges, arguments=("entries",))
def _accept(accepted: upkeep.Accepted) -> str:
    """Mark entries, or with --run all of a run, as read and kept: `reverie memory review` lists them no more."""
    return f"{len(accepted)} accepted." if accepted else "There was nothing to accept."


@curation.command(
    "undo",
    _UndoEntries,
    upkeep.UndoAll,
    arguments=("entries",),
    options={"everything": "--all"},
    helps={
        "since": "Only entries since this time: 2h, 3d, or a date and time.",
        "everything": "Undo all entries of the agent.",
    },
    parsers={"since": time_since},
    usage="name entries, or select them with --run, --job, --action, --since or --all",
)
def undo_curation(
    command: Invocation, call: _UndoEntries | upkeep.UndoAll, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Undo what jobs changed: entries by id, or all of a run, a job, an action or a time, newest first."""
    if isinstance(call, upkeep.UndoAll):
        if yes or _has_changes(command, call):
            confirm(_question(command, call), yes)
            result = command.send(call)
        else:
            result = upkeep.Undone(undone=[])
    else:
        undone: list[str] = []
        failed: dict[str, str] = {}
        for entry in dict.fromkeys(call.entries):
            try:
                undone.append(command.send(upkeep.Undo(entry)).id)
            except (Conflict, NotFound) as error:
                failed[entry] = str(error)
        result = upkeep.Undone(undone=undone, failed=failed)
    _print_undone(result, as_json=as_json)


def _print_undone(result: upkeep.Undone, *, as_json: bool) -> None:
    if as_json:
        print_json(result)
    else:
        if result.undone or not result.failed:
            say(f"{len(result.undone)} undone." if result.undone else "There was nothing to undo.")
        for entry, error_text in result.failed.items():
            prefix = f"{entry} cannot be undone: "
            say(prefix + error_text.removeprefix(f"entry {prefix}"))
    raise typer.Exit(1 if result.failed else 0)


def _has_changes(command: Invocation, call: upkeep.UndoAll) -> bool:
    """Return whether a job has changed anything of what is to be undone, undone or not. Raises `NotFound`."""
    if call.run is not None:
        return bool(command.send(upkeep.GetCurationRun(call.run, limit=1)).entries)
    newest = command.send(upkeep.ListCuration(job=call.job, action=call.action, limit=1)).entries
    return bool(newest) and (call.since is None or newest[0].at >= call.since)


def _question(command: Invocation, call: upkeep.UndoAll) -> str:
    parts = [
        f"Undo all changes to the memories of agent {command.agent}",
        f"by {call.job}" if call.job else "",
        f"in the run {call.run}" if call.run else "",
        f"({call.action})" if call.action else "",
        f"since {when(call.since)} UTC" if call.since else "",
    ]
    return " ".join(filter(None, parts)) + "?"


def _say_change(change: upkeep.CurationChange) -> None:
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


def _job_of(entry: upkeep.CurationEntry) -> str:
    return job_name(entry.job)


def _about(entry: upkeep.CurationEntry) -> str:
    ids = ", ".join(entry.memories[:3]) + (f" and {len(entry.memories) - 3} more" if len(entry.memories) > 3 else "")
    return ids or f"session {entry.session}"


@root.says("checkpoint", upkeep.MakeCheckpoint, arguments=("message",))
def _print_checkpoint(done: upkeep.Checkpoint, command: Invocation) -> None:
    """Commit the agent's memory files as they are now."""
    if done.commit is None and not command.send(upkeep.ListHistory(limit=1)).commits:
        say(f"No commit: agent {command.agent} has no memory files. Its first memory makes one.")
    elif done.commit is None:
        say("No commit: nothing has changed since the last one.")
    else:
        say(f"{done.commit.id[:10]}  {', '.join(done.commit.changed)}")
    for refused in done.refused:
        say(f"left out: {refused.path}: {refused.why}")


@root.lists(
    "history",
    upkeep.ListHistory,
    ("commit", "at", "message", "changed"),
    none="Agent {agent} has no commits in workspace {workspace} yet.",
)
def _commit_row(commit: upkeep.Commit) -> Row:
    """List the commits of the agent's memory files, newest first."""
    changed = shortened(", ".join(commit.changed), 80)
    return commit.id[:10], when(commit.at), shortened(commit.message, 60), changed


@root.says("diff", upkeep.GetDiff, arguments=("a", "b"))
def _diff(difference: upkeep.Difference) -> str:
    """Show the difference between two commits of the agent's memory files."""
    return difference.text.rstrip("\n") or "There is no difference."


@root.lists(
    "promotions",
    upkeep.ListPromotions,
    ("at", "score", "phase", "memory", "content"),
    none="Dream sweeps have promoted nothing of agent {agent} in workspace {workspace} yet.",
)
def _promotion_row(one: upkeep.Promotion) -> Row:
    """List what dream sweeps promoted, newest first, with the current content of each memory."""
    return when(one.at), f"{one.score:.3f}", one.phase, one.memory, shortened(one.content or "(deleted)", 80)
