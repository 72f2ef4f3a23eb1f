"""`reverie scratchpads`: show, write and clear the scratchpad of a session."""

from __future__ import annotations

import typer

from cli.application import application, invocation
from cli.options import takes
from cli.output import AsJson, encoded, print_json, print_result, say
from reverie.counts import counted
from reverie.errors import NotFound
from reverie.sessions.calls import (
    ClearScratchpad,
    ClearScratchpadKeys,
    DeleteScratchpadKey,
    GetScratchpad,
    GetScratchpadKey,
    ListScratchpadKeys,
    WriteScratchpad,
    WriteScratchpadKey,
)

scratchpads = typer.Typer(help="Show and change the working notes of a session.", no_args_is_help=True)
application.add_typer(scratchpads, name="scratchpads")


@scratchpads.command("show")
@takes(GetScratchpad, GetScratchpadKey, arguments=("session",), helps={"key": "Show only the value of this key."})
def show_scratchpad(context: typer.Context, call: GetScratchpad | GetScratchpadKey, as_json: AsJson = False) -> None:
    """Show the list of a scratchpad, and its keys with their values."""
    command, session = invocation(context), call.session
    if isinstance(call, GetScratchpadKey):
        entry = command.send(call)
        print_json(entry if as_json else entry.value)
        return
    written = command.send(call)
    entries = command.send(ListScratchpadKeys(session, user=call.user)).entries
    if as_json:
        print_json({"items": written.items, "updated_at": written.updated_at, "entries": entries})
        return
    for item in written.items:
        say(f"- {item}")
    for entry in entries:
        say(f"{entry.key} = {encoded(entry.value)}")
    if not written.items and not entries:
        say(f"The scratchpad of session {session} is empty.")


@scratchpads.command("write")
@takes(
    WriteScratchpad,
    WriteScratchpadKey,
    arguments=("session", "items"),
    helps={
        "items": "The whole list, which replaces the stored one: at most 32 items of 240 characters.",
        "key": "Set this key instead of the list.",
        "value": "The value of the key: JSON of at most 64 KiB.",
    },
    usage="give either the items of the list, or --key and --value",
)
def write_scratchpad(
    context: typer.Context, call: WriteScratchpad | WriteScratchpadKey, as_json: AsJson = False
) -> None:
    """Replace the list of a scratchpad, or set a key with --key and --value. Creates the session if needed."""
    command = invocation(context)
    if isinstance(call, WriteScratchpadKey):
        entry = command.send(call)
        print_result(entry, as_json, f"{entry.key} is set.")
        return
    written = command.send(call)
    print_result(written, as_json, f"{counted(len(written.items), 'item')} written.")


@scratchpads.command("clear")
@takes(ClearScratchpad, DeleteScratchpadKey, arguments=("session",), helps={"key": "Delete only this key."})
def clear_scratchpad(
    context: typer.Context, call: ClearScratchpad | DeleteScratchpadKey, as_json: AsJson = False
) -> None:
    """Delete the list and all keys of a scratchpad, or one key."""
    command = invocation(context)
    if isinstance(call, DeleteScratchpadKey):
        if not command.send(call).deleted:
            raise NotFound(f"the scratchpad of session {call.session!r} has no key {call.key!r}", field="key")
        cleared = 1
    else:
        keys = ClearScratchpadKeys(call.session, user=call.user)
        cleared = command.send(keys).cleared + command.send(call).cleared
    print_result({"cleared": cleared}, as_json, f"{cleared} deleted.")
