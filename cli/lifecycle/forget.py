"""`reverie forget`: erase with every trace, follow the job, and show its receipt."""

from __future__ import annotations

import time
from typing import Annotated, Final

import typer
from msgspec.structs import replace

from cli.application import Invocation
from cli.groups import Group, Row
from cli.output import AsJson, Yes, confirm, note, print_json, print_table, say, size, when
from reverie.counts import counted
from reverie.trust.calls import Erase, Erasure, GetErasure, ListErasures
from reverie.upkeep import RunJob

_POLL_SECONDS: Final = 0.3

forget = Group("forget", no_args_is_help=False)


@forget.callback(Erase, leave_out=("agent", "workspace"))
def erase(
    command: Invocation,
    call: Erase,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the receipt.")] = True,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Erase a user, session, message, memory, agent or workspace with every trace, and print the receipt.

    `--about "my sister"` finds messages and memories about somebody or something, and shows them first.
    """
    limited = replace(call, agent=command.flags.get("agent"), workspace=command.flags.get("workspace"))
    plan = command.send(replace(limited, dry_run=True))
    for name in ("session", "message", "memory"):
        if plan.kind == name and not any(map(sum, map(dict.values, plan.counts.values()))):
            raise command.missing(name, getattr(call, name))
    if call.dry_run and as_json:
        print_json(plan)
    elif call.dry_run or not yes:
        say(f"To be erased of {call.about or _named(plan)}:")
        _print_counts(plan)
        _print_items(plan)
    if call.dry_run:
        return
    if not yes and not plan.people and (call.about is None or plan.items):
        confirm(f"Erase {call.about or _named(plan)} for good? There is no undo.", yes)
    erasure = command.send(limited)
    ended = _finished(command, erasure) if wait else erasure
    if as_json:
        print_json(ended)
    else:
        _show(ended)
    if ended.state == "failed":
        raise typer.Exit(1)


@forget.lists("list", ListErasures, ("id", "requested", "what", "state", "leftovers"), none="There are no erasures.")
def _erasure_row(one: Erasure) -> Row:
    """List erasures, the newest first."""
    leftovers = len(one.receipt.leftovers) if one.receipt else "-"
    return one.id, when(one.requested_at), one.kind, _state(one), leftovers


def _finished(command: Invocation, erasure: Erasure) -> Erasure:
    """Wait until an erasure has ended; where no Reverie runs, do its work in this process."""
    if command.target.url is None:
        command.answer(RunJob(job="continue-erasures"))
        return command.answer(GetErasure(id=erasure.id))
    error = ""
    while erasure.state not in ("done", "failed"):
        time.sleep(_POLL_SECONDS)
        erasure = command.send(GetErasure(id=erasure.id))
        if erasure.error and erasure.error != error:
            error = erasure.error
            note(f"reverie: the erasure waits and continues by itself: {error}")
    return erasure


@forget.says("status", GetErasure, arguments=("id",))
def _show(erasure: Erasure) -> None:
    """Show an erasure: its progress, or its receipt."""
    if erasure.receipt is None:
        say(f"Erasure {erasure.id}: {_state(erasure)}")
        if erasure.state == "failed":
            say(f"It cannot be carried out as it was asked for: {erasure.error}")
        elif erasure.error:
            say(f"It waits and continues by itself when Reverie runs{_next_try(erasure)}: {erasure.error}")
        _print_counts(erasure)
    else:
        _print_receipt(erasure)


def _print_counts(erasure: Erasure) -> None:
    rows = [(place, name, number) for place, counts in erasure.counts.items() for name, number in counts.items()]
    print_table(("where", "what", "number"), rows, empty="Nothing.")


def _print_items(plan: Erasure) -> None:
    """Print what is about something, and why, or who may be meant."""
    if plan.people:
        say("Several may be meant; name one: " + "; ".join(plan.people))
    elif plan.items:
        rows = [(one.kind, one.id, one.reason, one.text) for one in plan.items]
        print_table(("what", "id", "reason", "text"), rows, empty="")


def _print_receipt(erasure: Erasure) -> None:
    receipt = erasure.receipt
    assert receipt is not None
    what = f"{receipt.kind} ({receipt.target_hash[:16]})"
    say(f"Erased a {what} on {when(receipt.finished_at)}, by {receipt.requested_by}.")
    say(f"Receipt {receipt.erasure}: `reverie forget status` shows it again.")
    say()
    _print_counts(erasure)
    say()
    searched = receipt.searched
    say(
        f"Searched {counted(searched.files, 'file')} ({size(searched.bytes)}) for {counted(searched.parts, 'part')} of"
        f" what was removed, as {', '.join(searched.forms)}."
    )
    if receipt.hosts:
        say(f"Also removed from the files of {', '.join(receipt.hosts)}.")
    if receipt.leftovers:
        say("Found in:")
        print_table(("file", "parts"), sorted(receipt.leftovers.items()), empty="")
    else:
        say("Nothing of it is left.")
    say()
    say("Out of reach:")
    print_table(("responsible", "what"), [(one.responsible, one.what) for one in receipt.remains], empty="")


def _state(erasure: Erasure) -> str:
    if erasure.state in ("done", "failed"):
        return erasure.state
    failed = f", failed {counted(erasure.attempts, 'time')}{_next_try(erasure)}" if erasure.attempts else ""
    return f"step {erasure.steps.index(erasure.step) + 1} of {len(erasure.steps)} ({erasure.step}){failed}"


def _next_try(erasure: Erasure) -> str:
    return "" if erasure.next_try_at is None else f", next try at {when(erasure.next_try_at)}"


def _named(plan: Erasure) -> str:
    text = f"{plan.kind} {plan.target}" if plan.target else f"{plan.kind} {plan.agent or plan.workspace}"
    limits = [f"{name} {value}" for name, value in (("agent", plan.agent), ("workspace", plan.workspace)) if value]
    return f"{text} ({', '.join(limits)})" if plan.target and limits else text
