"""`reverie broker-url`: the URL of the broker, for an agent's own workers."""

from __future__ import annotations

import typer

from cli.application import application, invocation
from cli.output import say


@application.command("broker-url")
def broker_url(context: typer.Context) -> None:
    """Print the URL of the broker: `export REVERIE_BROKER=$(reverie broker-url)`."""
    say(invocation(context).settings.broker_url)
