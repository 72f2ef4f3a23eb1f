"""`reverie schedules pause|resume|delete`, and `secret`: the secret with which webhooks are signed."""

from __future__ import annotations

import typer

from cli.application import invocation
from cli.options import takes
from cli.output import AsJson, Yes, confirm, print_deleted, print_json, say
from cli.scheduling.schedules import print_status, schedules
from memory.scheduling import schedules as stored
from reverie.scheduling.calls import DeleteSchedule, PauseSchedule, ResumeSchedule


@schedules.command("pause")
@takes(PauseSchedule, arguments=("id",))
def pause_schedule(context: typer.Context, call: PauseSchedule, as_json: AsJson = False) -> None:
    """Pause a schedule until it is resumed; a run in progress continues."""
    command = invocation(context)
    store, now = command.store_with("schedule", call.id), command.runtime.now()
    print_status(stored.pause_schedule(store, call.id, agent=command.agent, now=now), as_json)


@schedules.command("resume")
@takes(ResumeSchedule, arguments=("id",))
def resume_schedule(context: typer.Context, call: ResumeSchedule, as_json: AsJson = False) -> None:
    """Resume a schedule that was paused or disabled or has failed; missed runs are not made up for."""
    command = invocation(context)
    rules, now = command.settings.schedule_rules, command.runtime.now()
    store = command.store_with("schedule", call.id)
    print_status(stored.resume_schedule(store, call.id, agent=command.agent, rules=rules, now=now), as_json)


@schedules.command("delete")
@takes(DeleteSchedule, arguments=("id",))
def remove_schedule(context: typer.Context, call: DeleteSchedule, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a schedule with its runs for good."""
    command = invocation(context)
    store = command.store_with("schedule", call.id)
    confirm(f"Delete schedule {call.id!r} of agent {command.agent} with its runs for good?", yes)
    deleted = stored.delete_schedule(store, call.id, agent=command.agent)
    print_deleted(deleted, as_json, missing=command.missing("schedule", call.id))


@schedules.command("secret")
def show_secret(context: typer.Context, as_json: AsJson = False) -> None:
    """Show the secret with which webhooks are signed, for those who receive them; it is created on first use."""
    secrets = invocation(context).runtime.schedules.secrets
    if as_json:
        print_json({"secrets": secrets})
        return
    for secret in secrets:
        say(secret)
    typer.echo(
        "This secret signs the webhooks of this installation (Standard Webhooks): receivers check the header"
        " webhook-signature with it. Keep it secret.",
        err=True,
    )
