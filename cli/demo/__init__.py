"""The demonstration: stores a conversation through the real queue and answers questions about it (`reverie demo`)."""

from __future__ import annotations

from pathlib import Path

import typer

from cli.application import Invocation
from cli.groups import root

DATA = Path(".reverie")


@root.command("demo")
def _demo(command: Invocation) -> None:
    """Start everything, store a conversation, ask questions about it, stop; the data stays in ./.reverie."""
    from cli.demo.showing import main

    raise typer.Exit(main(command.flags.get("data") or DATA))
