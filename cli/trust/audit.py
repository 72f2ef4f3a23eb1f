"""`reverie audit`: who did what."""

from __future__ import annotations

from datetime import UTC, datetime

import typer

from cli.application import application, invocation
from cli.options import takes
from cli.output import AsJson, print_list, when
from cli.scheduling.durations import seconds_of
from reverie.clock import from_micros, now_micros
from reverie.errors import Rejected
from reverie.trust.calls import ListAudit


def _since(text: str) -> str:
    """Return a time given as a duration before now, or as a date and time. Raises `Rejected`."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            moment = from_micros(max(0, now_micros() - seconds_of(text, "since") * 1_000_000))
        except Rejected:
            raise Rejected(
                f"since is {text[:80]!r}; give a time like 90m, 2h or 3d, or a date and time", field="since"
            ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()


@application.command()
@takes(
    ListAudit,
    helps={"since": "Only entries since this time: 2h, 3d, or a date and time."},
    parsers={"since": _since},
)
def audit(context: typer.Context, call: ListAudit, as_json: AsJson = False) -> None:
    """List the audit log, newest first: token changes, deletions, exports, refusals."""
    listed = invocation(context).send(call).entries
    print_list(
        listed,
        as_json,
        ("at", "actor", "action", "target", "outcome", "workspace", "agent", "from", "count"),
        (
            (
                when(one.at),
                one.actor or "-",
                one.action,
                one.target or "-",
                one.outcome,
                one.workspace or "-",
                one.agent or "-",
                one.origin or "-",
                one.count,
            )
            for one in listed
        ),
        empty="The audit log has no such entries.",
    )
