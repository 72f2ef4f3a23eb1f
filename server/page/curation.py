"""What jobs changed in memories, with undo; what dream sweeps promoted; and erasures, their plans and receipts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Literal

from msgspec import json
from starlette.responses import Response

from reverie import upkeep
from reverie.clock import from_micros
from reverie.counts import counted
from reverie.errors import Conflict, Rejected
from reverie.memories.calls import ApproveMemory, ConfirmMemory, Forget, UpdateMemory
from reverie.trust.calls import Erase, GetErasure, ListErasures
from server.page.rendering import exact
from server.page.site import PAGE_SIZE, Pages, Visit

# The columns that a person understands; ids of rows and hashes are not shown.
_FIELDS: Final = (
    "content", "text", "value", "name", "tags", "kind", "tier", "lifetime", "importance", "access_count",
    "expires_at", "pinned", "visibility",
)  # fmt: skip
_NAMES: Final = {
    "memories": "Memory",
    "messages": "Message",
    "sessions": "Conversation",
    "session_summaries": "Summary",
}
_HIDDEN_TABLES: Final = ("chunks", "chunks_vec", "forward_index", "forward_changes", "message_chunks", "recall_events")

pages = Pages()


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field of a row before and after a change; None where there was no row."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row that an entry added, removed or changed."""

    table: str
    kind: Literal["added", "removed", "changed", "replaced by another one"]
    text: str
    fields: list[FieldChange]


_NOTICES: Final = {
    "undone": "Undone. Jobs do not repeat it.",
    "accepted": "Accepted.",
    "confirmed": "Confirmed.",
    "approved": "Approved. The log can undo it.",
}


@pages.get("/log")
async def _log(visit: Visit) -> Response:
    """Show what each run did, or the lines about one memory."""
    memory, limit, offset = visit.query("memory"), PAGE_SIZE + 1, visit.number("offset")
    runs: list[upkeep.CurationRun] = []
    lines: list[upkeep.CurationEntry] = []
    if memory:
        lines = (await visit.send(upkeep.ListCuration(memory=memory, limit=limit, offset=offset))).entries
    else:
        runs = (await visit.send(upkeep.ListCurationRuns(limit=limit, offset=offset))).runs
    return visit.page(
        "log.html",
        runs=runs[:PAGE_SIZE],
        lines=lines[:PAGE_SIZE],
        memory=memory,
        **visit.beside("/log", is_last=len(runs or lines) <= PAGE_SIZE, memory=memory),
        notice=_NOTICES.get(visit.query("done"), ""),
    )


@pages.get("/log/run")
async def _run(visit: Visit) -> Response:
    run = await visit.send(upkeep.GetCurationRun(visit.query("id"), limit=PAGE_SIZE + 1, offset=visit.number("offset")))
    is_last = len(run.entries) <= PAGE_SIZE
    return visit.page(
        "log_run.html",
        run=run,
        lines=run.entries[:PAGE_SIZE],
        **visit.beside("/log/run", is_last=is_last, id=run.id),
        notice=_NOTICES.get(visit.query("done"), ""),
    )


@pages.get("/log/entry")
async def _entry(visit: Visit) -> Response:
    entry = await visit.send(upkeep.GetCurationEntry(visit.query("id")))
    changes, hidden = _readable(entry.changes), sum(change.table in _HIDDEN_TABLES for change in entry.changes)
    memories = [change.after or change.before or {} for change in entry.changes if change.table == "memories"]
    texts = {str(row["id"]): str(row["content"]) for row in memories}
    return visit.page("log_entry.html", entry=entry, changes=changes, hidden=hidden, names=_NAMES, texts=texts)


@pages.get("/review")
async def _review(visit: Visit) -> Response:
    review, notice = await visit.send(upkeep.GetReview()), _NOTICES.get(visit.query("done"), "")
    can = {"can_change": visit.allows(UpdateMemory), "can_delete": visit.allows(Forget)}
    return visit.page("review.html", review=review, notice=notice, **can)


@pages.post("/review/confirm")
async def _confirm(visit: Visit) -> Response:
    await visit.send(ConfirmMemory(visit.query("id")))
    return visit.see_other("/review", done="confirmed")


@pages.post("/review/approve")
async def _approve(visit: Visit) -> Response:
    """Approve the text that the page showed, and no other: its user may have changed it since."""
    await visit.send(ApproveMemory(visit.query("id"), visit.form.text("content")))
    return visit.see_other("/review", done="approved")


@pages.post("/log/undo")
async def _undo(visit: Visit) -> Response:
    id, run = visit.query("id"), visit.query("run")
    if id:
        await visit.send(upkeep.Undo(id))
    elif failed := (undone := await visit.send(upkeep.UndoAll(run=run))).failed:
        done, left = counted(len(undone), "line"), counted(len(failed), "line")
        raise Conflict(f"{done} undone, and {left} not: {next(iter(failed.values()))}")
    return _back(visit, run, "undone")


@pages.post("/log/accept")
async def _accept(visit: Visit) -> Response:
    """Accept a line, a run, or the lines that the page showed, and no others: more may be there by now."""
    run, ids = visit.query("run"), visit.form.words("entries") or [visit.query("id")]
    await visit.send(upkeep.AcceptChanges(ids) if ids[0] else upkeep.AcceptChanges(run=run))
    return _back(visit, run, "accepted")


def _back(visit: Visit, run: str, done: str) -> Response:
    """Return to the run that a line belongs to, or to where it was listed."""
    path = "/review" if visit.query("from") else "/log"
    return visit.see_other("/log/run", id=run, done=done) if run else visit.see_other(path, done=done)


def _readable(changes: list[upkeep.CurationChange]) -> list[RowChange]:
    """Return the changes that a person can read; those of times and counts alone only if there is no other."""
    rows = [_row(change) for change in changes if change.table not in _HIDDEN_TABLES]
    return [row for row in rows if row.fields or row.kind != "changed"] or rows


def _row(change: upkeep.CurationChange) -> RowChange:
    before, after = change.before or {}, change.after or {}
    kind: Literal["added", "removed", "changed", "replaced by another one"] = "changed"
    if change.before is None or change.after is None:
        kind = "added" if change.before is None else "removed"
    elif after.get("superseded_by") is not None and before.get("superseded_by") is None:
        kind = "replaced by another one"
    fields = [
        FieldChange(name.replace("_", " "), _text(before, name), _text(after, name))
        for name in _FIELDS
        if _text(before, name) != _text(after, name)
    ]
    content = after.get("content") or before.get("content") or ""
    is_among_fields = any(field.name == "content" for field in fields)
    return RowChange(change.table, kind, "" if is_among_fields else str(content), fields)


def _text(row: dict[str, Any], name: str) -> str | None:
    """Return the value of a field as a person reads it; None where it says nothing: empty, zero, or no."""
    value = row.get(name)
    if not value or value == "[]":
        return None
    match name:
        case "tags":
            return ", ".join(map(str, json.decode(value) if isinstance(value, str) else value))
        case "pinned":
            return "yes"
        case "expires_at":
            return exact(from_micros(int(value)))
        case "lifetime":
            return str(value).replace("_", "-")
    return str(value)


_COMMITS: Final = 100
_PROMOTIONS: Final = 20
_HUNK: Final = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a diff."""

    kind: Literal["file", "place", "added", "removed", "same"]
    text: str


@pages.get("/dreams")
async def _dreams(visit: Visit) -> Response:
    commits, problem = await _history(visit)
    promotions = (await visit.send(upkeep.ListPromotions(limit=_PROMOTIONS))).promotions
    return visit.page("dreams.html", commits=commits, promotions=promotions, problem=problem)


@pages.get("/dream")
async def _dream(visit: Visit) -> Response:
    id = visit.query("id")
    commits, _ = await _history(visit)
    at = next((place for place, commit in enumerate(commits) if commit.id == id), None)
    commit = commits[at] if at is not None else None
    parent = commits[at + 1].id if at is not None and at + 1 < len(commits) else None
    lines = diff_lines((await visit.send(upkeep.GetDiff(a=parent, b=id))).text) if parent else None
    return visit.page("dream.html", id=id, commit=commit, lines=lines)


async def _history(visit: Visit) -> tuple[list[upkeep.Commit], str]:
    """Return the commits, the newest first, and why there are none if the memory files are not kept in git."""
    try:
        return (await visit.send(upkeep.ListHistory(limit=_COMMITS))).commits, ""
    except Conflict as error:
        return [], str(error)


def diff_lines(text: str) -> list[DiffLine]:
    """Return the lines of a unified diff, each with its kind; a line that names a file becomes the bare name."""
    lines: list[DiffLine] = []
    old = new = 0  # the lines that the hunk still has: within it, "--- x" is a removed line "-- x"
    for line in text.splitlines():
        hunk = _HUNK.match(line)
        if old <= 0 and new <= 0:
            if hunk:
                old, new = (1 if count is None else int(count) for count in hunk.groups())
                lines.append(DiffLine("place", line))
            elif line.startswith(("--- a/", "+++ b/")):
                file = DiffLine("file", line[len("--- a/") :])
                lines += [file] if lines[-1:] != [file] else []
        elif line.startswith("+"):
            lines.append(DiffLine("added", line[1:]))
            new -= 1
        elif line.startswith("-"):
            lines.append(DiffLine("removed", line[1:]))
            old -= 1
        elif not line.startswith("\\"):  # "No newline at end of file"
            lines.append(DiffLine("same", line[1:]))
            old, new = old - 1, new - 1
    return lines


# The kinds of erasures, with their names on the page. An agent or a workspace needs no id.
_KINDS: Final = {
    "user": "Everything of a user",
    "session": "A conversation",
    "message": "A message",
    "memory": "A memory",
    "selection": "What is about somebody or something",
    "agent": "This whole agent",
    "workspace": "This whole workspace",
}
_WHOLE: Final = ("agent", "workspace")
# So many texts of a plan have a box each to keep them; of more, the ids are entered, as a form has few fields.
_BOXES: Final = 50


@pages.get("/erasures")
async def _erasures(visit: Visit) -> Response:
    found = (await visit.send(ListErasures(limit=PAGE_SIZE + 1, offset=visit.number("offset")))).erasures
    return visit.page(
        "erasures.html",
        erasures=found[:PAGE_SIZE],
        kinds=_KINDS,
        kind=visit.query("kind"),
        target=visit.query("target"),
        **visit.beside("/erasures", is_last=len(found) <= PAGE_SIZE),
    )


@pages.post("/erasure/plan")
async def _plan(visit: Visit) -> Response:
    """Show what would be erased: nothing is removed yet."""
    call = _call(visit, dry_run=True)
    planned = await visit.send(call)
    kind, target = visit.form.text("kind"), visit.form.text("target").strip()
    return visit.page("erasure_plan.html", plan=planned, kind=kind, target=target, kinds=_KINDS, boxes=_BOXES)


@pages.post("/erasure/start")
async def _start(visit: Visit) -> Response:
    if not visit.form.is_checked("sure"):
        raise Rejected("check the box first: what is erased cannot be brought back", field="sure")
    erasure = await visit.send(_call(visit, dry_run=False))
    return visit.see_other("/erasure", id=erasure.id)


@pages.get("/erasure")
async def _erasure(visit: Visit) -> Response:
    erasure = await visit.send(GetErasure(id=visit.query("id")))
    template = "parts/erasure_state.html" if visit.is_partial else "erasure.html"
    return visit.page(template, erasure=erasure, kinds=_KINDS)


def _call(visit: Visit, *, dry_run: bool) -> Erase:
    """Return the call for a form. Raises `Rejected` if it names nothing."""
    kind, target, place = visit.form.text("kind"), visit.form.text("target").strip(), visit.place
    assert place is not None
    if kind not in _KINDS:
        raise Rejected("choose what to erase", field="kind")
    if kind not in _WHOLE and not target:
        what = "what it is about" if kind == "selection" else f"which {kind}: its id or name is missing"
        raise Rejected(f"say {what}", field="target")
    named: dict[str, Any] = {"agent": place.agent, "workspace": place.workspace}
    if kind == "workspace":
        del named["agent"]
    elif kind == "selection":
        named |= {"about": target, "user": place.user, "keep": visit.form.words("keep")}
    elif kind not in _WHOLE:
        named[kind] = target
    return Erase(**named, dry_run=dry_run)
