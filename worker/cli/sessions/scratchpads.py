"""`reverie scratchpads`: the working notes of a session. These commands work on the data folder itself."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from memory.sessions import scratchpads as pads
from reverie.calls import validated
from reverie.errors import Rejected
from reverie.sessions.calls import WriteScratchpad, WriteScratchpadKey
from worker.cli.application import Invocation, application, invocation
from worker.cli.output import AsJson, counted, print_json, say

scratchpads = typer.Typer(help="Working notes of a session.", no_args_is_help=True)
application.add_typer(scratchpads, name="scratchpads")


@scratchpads.command("show")
def show_scratchpad(
    context: typer.Context,
    session: str,
    key: Annotated[str | None, typer.Option(help="Only the value of this key.")] = None,
    as_json: AsJson = False,
) -> None:
    """The list of a session and its keys with their values."""
    call = invocation(context)
    store = call.runtime.stores.workspace(call.settings.workspace, create=False)
    if key is not None:
        found = pads.read_key(store, agent=call.agent, session=session, key=key)
        print_json(found if as_json else found.value)
        return
    written = pads.read_items(store, agent=call.agent, session=session)
    entries = pads.list_keys(store, agent=call.agent, session=session)
    if as_json:
        print_json({"items": written.items, "updated_at": written.updated_at, "entries": entries})
        return
    for item in written.items:
        say(f"- {item}")
    for entry in entries:
        say(f"{entry.key} = {msgspec.json.encode(entry.value).decode()}")
    if not written.items and not entries:
        say(f"Nothing is noted in session {session}.")


@scratchpads.command("write")
def write_scratchpad(
    context: typer.Context,
    session: str,
    items: Annotated[list[str] | None, typer.Argument(help="The whole list, in the place of what was there.")] = None,
    key: Annotated[str | None, typer.Option(help="Set this key instead.")] = None,
    value: Annotated[str | None, typer.Option(help="Its value as JSON.")] = None,
    as_json: AsJson = False,
) -> None:
    """Replace the list of a session, or set a key with --key and --value. The first note makes the session."""
    call = invocation(context)
    if (key is None) != (value is None) or bool(items) == (key is not None):
        raise Rejected("give either the items of the list, or --key and --value", field="items")
    runtime = call.runtime
    if key is not None and value is not None:
        new = validated(WriteScratchpadKey(session, key, _decoded(value)))
        store = runtime.store(call.settings.workspace)
        entry = pads.write_key(
            store, agent=call.agent, session=session, key=new.key, value=new.value, now=runtime.now()
        )
        print_json(entry) if as_json else say(f"{entry.key} is set.")
        return
    new_items = list(validated(WriteScratchpad(session, items or ())).items)
    store = runtime.store(call.settings.workspace)
    written = pads.write_items(store, agent=call.agent, session=session, items=new_items, now=runtime.now())
    print_json(written) if as_json else say(f"{counted(len(written.items), 'item')}.")


@scratchpads.command("clear")
def clear_scratchpad(
    context: typer.Context,
    session: str,
    key: Annotated[str | None, typer.Option(help="Only this key.")] = None,
    as_json: AsJson = False,
) -> None:
    """Remove the list and all keys of a session, or one key."""
    call = invocation(context)
    cleared = _clear(call, session, key)
    print_json({"cleared": cleared}) if as_json else say(f"{cleared} removed.")


def _clear(call: Invocation, session: str, key: str | None) -> int:
    store = call.runtime.stores.workspace(call.settings.workspace, create=False)
    keys = pads.delete_keys(store, agent=call.agent, session=session, key=key)
    return keys if key is not None else keys + pads.clear_items(store, agent=call.agent, session=session)


def _decoded(value: str) -> object:
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        raise Rejected(f"value {value[:80]!r} is not JSON; a text needs double quotes", field="value") from None
