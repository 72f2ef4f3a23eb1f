"""`reverie scratchpads`: show, write and clear the scratchpad of a session. These commands open the data folder."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from memory.sessions import scratchpads as stored
from reverie.calls import validated
from reverie.errors import Rejected
from reverie.sessions.calls import WriteScratchpad, WriteScratchpadKey
from worker.cli.application import application, invocation
from worker.cli.output import AsJson, counted, encoded, print_json, print_result, say

scratchpads = typer.Typer(help="Show and change the working notes of a session.", no_args_is_help=True)
application.add_typer(scratchpads, name="scratchpads")

SessionArgument = Annotated[str, typer.Argument(help="The id of a session.")]


@scratchpads.command("show")
def show_scratchpad(
    context: typer.Context,
    session: SessionArgument,
    key: Annotated[str | None, typer.Option(help="Show only the value of this key.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the list of a scratchpad, and its keys with their values."""
    command = invocation(context)
    store = command.store
    if key is not None:
        entry = stored.read_key(store, agent=command.agent, session=session, key=key)
        print_json(entry if as_json else entry.value)
        return
    written = stored.read_items(store, agent=command.agent, session=session)
    entries = stored.list_keys(store, agent=command.agent, session=session)
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
def write_scratchpad(
    context: typer.Context,
    session: SessionArgument,
    items: Annotated[list[str] | None, typer.Argument(help="The whole list; it replaces the stored one.")] = None,
    key: Annotated[str | None, typer.Option(help="Set this key instead of the list.")] = None,
    value: Annotated[str | None, typer.Option(help="The value of the key, as JSON.")] = None,
    as_json: AsJson = False,
) -> None:
    """Replace the list of a scratchpad, or set a key with --key and --value. Creates the session if needed."""
    command = invocation(context)
    if (key is None) != (value is None) or bool(items) == (key is not None):
        raise Rejected("give either the items of the list, or --key and --value", field="items")
    runtime, workspace, agent = command.runtime, command.settings.workspace, command.agent
    if key is not None and value is not None:
        call = validated(WriteScratchpadKey(session, key, _decoded(value)))
        entry = stored.write_key(
            runtime.store(workspace), agent=agent, session=session, key=call.key, value=call.value, now=runtime.now()
        )
        print_result(entry, as_json, f"{entry.key} is set.")
        return
    new_items = list(validated(WriteScratchpad(session, items or ())).items)
    written = stored.write_items(
        runtime.store(workspace), agent=agent, session=session, items=new_items, now=runtime.now()
    )
    print_result(written, as_json, f"{counted(len(written.items), 'item')} written.")


@scratchpads.command("clear")
def clear_scratchpad(
    context: typer.Context,
    session: SessionArgument,
    key: Annotated[str | None, typer.Option(help="Delete only this key.")] = None,
    as_json: AsJson = False,
) -> None:
    """Delete the list and all keys of a scratchpad, or one key."""
    command = invocation(context)
    store, agent = command.store, command.agent
    cleared = stored.delete_keys(store, agent=agent, session=session, key=key)
    if key is None:
        cleared += stored.clear_items(store, agent=agent, session=session)
    print_result({"cleared": cleared}, as_json, f"{cleared} deleted.")


def _decoded(value: str) -> object:
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        raise Rejected(f"--value {value[:80]!r} is not JSON; put a text in double quotes", field="value") from None
