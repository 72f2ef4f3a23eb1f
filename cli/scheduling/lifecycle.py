"""`reverie schedules pause|resume|delete`, and `secret`: the secret with which webhooks are signed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from cli.application import invocation
from cli.options import takes
from cli.output import AsJson, Yes, confirm, print_deleted, print_json, say
from cli.scheduling.schedules import print_status, schedules
from reverie.scheduling.calls import DeleteSchedule, PauseSchedule, ResumeSchedule


@schedules.command("pause")
@takes(PauseSchedule, arguments=("id",))
def pause_schedule(context: typer.Context, call: PauseSchedule, as_json: AsJson = False) -> None:
    """Pause a schedule until it is resumed; a run in progress continues."""
    print_status(invocation(context).send(call), as_json)


@schedules.command("resume")
@takes(ResumeSchedule, arguments=("id",))
def resume_schedule(context: typer.Context, call: ResumeSchedule, as_json: AsJson = False) -> None:
    """Resume a schedule that was paused or disabled or has failed; missed runs are not made up for."""
    print_status(invocation(context).send(call), as_json)


@schedules.command("delete")
@takes(DeleteSchedule, arguments=("id",))
def remove_schedule(context: typer.Context, call: DeleteSchedule, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a schedule with its runs for good."""
    command = invocation(context)
    confirm(f"Delete schedule {call.id!r} of agent {command.agent} with its runs for good?", yes)
    print_deleted(command.send(call).deleted, as_json, missing=command.missing("schedule", call.id))


@schedules.command("secret")
def show_secret(
    context: typer.Context,
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Make a new secret; the present one signs, too, for seven days.")
    ] = False,
    notifier: Annotated[
        bool, typer.Option("--notifier", help="The secret of reminders and notifications instead.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the secret with which the webhooks of the agent are signed, for those who receive them.

    After a rotation there are two, the newest first. Receivers accept a message that one of them has signed.
    """
    if rotate and notifier:
        raise typer.BadParameter("rotate the notifier's by webhook_secret: give several, separated by blanks")
    command = invocation(context)
    # No call returns the secret: whoever may use the server must not be able to forge its webhooks. It is read from the
    # settings and the data folder, which is only created if the user names it.
    if command.target.named_data is None:
        command.target.existing_data()
    services = command.runtime.schedules
    own = services.agent_secrets(command.workspace)
    now = datetime.now(UTC)
    if notifier:
        secrets = services.secrets
    else:
        secrets = own.rotate(command.agent, now) if rotate else own.secrets(command.agent, now)
    if as_json:
        print_json({"secrets": secrets})
        return
    for secret in secrets:
        say(secret)
    typer.echo(
        f"This signs {'what is sent to the notifier' if notifier else f'the webhooks of agent {command.agent}'}"
        " (Standard Webhooks): receivers check the header webhook-signature with it. Keep it secret.",
        err=True,
    )
