"""`reverie schedules pause|resume|delete`, and the secret that their webhooks are signed with."""

from __future__ import annotations

import typer

from memory.scheduling import schedules as timetable
from reverie.scheduling.checks import check_schedule_id
from worker.cli.application import invocation
from worker.cli.memories.memories import Yes, confirm, print_removed
from worker.cli.output import AsJson, print_json, say
from worker.cli.scheduling.schedules import print_status, schedules, store_of


@schedules.command("pause")
def pause_schedule(context: typer.Context, id: str, as_json: AsJson = False) -> None:
    """Have a schedule fire no more until it is resumed; a run that is under way goes on."""
    call = invocation(context)
    now = call.runtime.now()
    print_status(
        timetable.pause_schedule(store_of(call, id), check_schedule_id(id), agent=call.agent, now=now), as_json
    )


@schedules.command("resume")
def resume_schedule(context: typer.Context, id: str, as_json: AsJson = False) -> None:
    """Have a schedule fire again that was paused, disabled or had failed. What it missed is not made up for."""
    call = invocation(context)
    rules, now = call.settings.schedule_rules, call.runtime.now()
    store = store_of(call, id)
    print_status(
        timetable.resume_schedule(store, check_schedule_id(id), agent=call.agent, rules=rules, now=now), as_json
    )


@schedules.command("delete")
def remove_schedule(context: typer.Context, id: str, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a schedule with its runs for good."""
    call = invocation(context)
    asked = check_schedule_id(id)
    store = store_of(call, asked)
    confirm(f"Delete schedule {asked!r} of agent {call.agent} with its runs for good?", yes)
    gone = timetable.delete_schedule(store, asked, agent=call.agent)
    print_removed(gone, as_json, missing=f"agent {call.agent} has no schedule {asked!r}")


@schedules.command("secret")
def show_secret(context: typer.Context, as_json: AsJson = False) -> None:
    """The secret that webhooks are signed with, for whoever receives them; made with the first look."""
    secrets = invocation(context).runtime.schedules.secrets
    if as_json:
        print_json({"secrets": secrets})
        return
    for secret in secrets:
        say(secret)
    typer.echo(
        "Signs this installation's webhooks (Standard Webhooks): their receivers check the header webhook-signature"
        " by it, and nobody else is to know it.",
        err=True,
    )
