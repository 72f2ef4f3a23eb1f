"""`reverie dead-letters`: list, replay and drop work that failed for good."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cli.application import Invocation, application, invocation
from cli.options import takes
from cli.output import AsJson, print_fields, print_json, print_list, print_result, shortened, when
from memory.pipeline import dead_letters as letters
from reverie.clock import from_micros
from reverie.errors import Rejected
from reverie.pipeline.calls import GetDeadLetter, ListDeadLetters
from storage.pipeline.records import DeadLetter

dead = typer.Typer(help="List, replay and drop work that failed for good.", no_args_is_help=True)
application.add_typer(dead, name="dead-letters")

_PAGE = 500


@dead.command("list")
@takes(ListDeadLetters, leave_out=("offset", "all_agents"))
def list_dead_letters(context: typer.Context, call: ListDeadLetters, as_json: AsJson = False) -> None:
    """List the dead letters of all agents in the workspace, newest first."""
    command = invocation(context)
    with command.store.reading() as tx:
        listed = tx.dead_letters.list(limit=call.limit)
    print_list(
        [_letter(letter) for letter in listed],
        as_json,
        ("id", "agent", "stage", "item", "at", "error"),
        ((x.id, x.agent, x.stage, shortened(x.item_id, 20), when(x.created_at), shortened(x.error)) for x in listed),
        empty="There are no dead letters.",
    )


@dead.command("show")
@takes(GetDeadLetter, arguments=("letter_id",))
def show_dead_letter(context: typer.Context, call: GetDeadLetter, as_json: AsJson = False) -> None:
    """Show a dead letter with its payload and error."""
    command = invocation(context)
    with command.store.reading() as tx:
        letter = _letter(tx.dead_letters.get(call.letter_id), with_payload=True)
    if as_json:
        print_json(letter)
    else:
        print_fields(letter)


@dead.command("replay")
def replay_dead_letters(
    context: typer.Context,
    letter: Annotated[int | None, typer.Argument(help="The number of a dead letter.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every dead letter of the workspace.")] = False,
    as_json: AsJson = False,
) -> None:
    """Queue dead letters again, once the cause of their failure is gone."""
    command = invocation(context)
    store = command.store
    done, failed = [], {}
    for letter_id in _chosen_letters(command, letter, everything):
        try:
            replayed = letters.replay(store, command.runtime.inbox, letter_id)
        except Rejected as error:
            if not everything:
                raise
            failed[letter_id] = str(error)
            continue
        command.runtime.notify_stage(replayed.stage, store.name)
        done.append(letter_id)
    text = f"{len(done)} replayed" + (f", {len(failed)} cannot be: {failed}" if failed else ".")
    print_result({"replayed": done, "failed": {str(key): value for key, value in failed.items()}}, as_json, text)
    raise typer.Exit(1 if failed else 0)


@dead.command("drop")
def drop_dead_letters(
    context: typer.Context,
    letter: Annotated[int | None, typer.Argument(help="The number of a dead letter.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every dead letter of the workspace.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete dead letters for good."""
    command = invocation(context)
    store = command.store
    dropped = [letters.drop(store, letter_id).id for letter_id in _chosen_letters(command, letter, everything)]
    print_result({"dropped": dropped}, as_json, f"{len(dropped)} dropped.")


def _chosen_letters(command: Invocation, letter: int | None, everything: bool) -> list[int]:
    if (letter is None) == (not everything):
        raise Rejected("name one dead letter, or --all", field="letter")
    if letter is not None:
        return [letter]
    store = command.store
    ids: list[int] = []
    with store.reading() as tx:
        while page := tx.dead_letters.list(limit=_PAGE, offset=len(ids)):
            ids += [entry.id for entry in page]
    return ids


def _letter(letter: DeadLetter, *, with_payload: bool = False) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": letter.id,
        "agent": letter.agent,
        "session": letter.session,
        "stage": letter.stage,
        "item": letter.item_id,
        "error_type": letter.error_type,
        "error": letter.error,
        "attempts": letter.attempts,
        "trace": letter.trace,
        "created_at": from_micros(letter.created_at),
    }
    if with_payload and letter.payload is not None:
        shown["payload"] = letter.payload.decode("utf-8", "replace")
    return shown
