"""`reverie dead-letters`: list, replay and drop work that failed for good."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from cli.application import Invocation, application, invocation
from cli.options import takes
from cli.output import AsJson, note, print_list, print_result, print_struct, shortened, when
from reverie.errors import Conflict, NotFound, Rejected
from reverie.pipeline.calls import DropDeadLetter, GetDeadLetter, ListDeadLetters, ReplayDeadLetter

dead = typer.Typer(help="List, replay and drop work that failed for good.", no_args_is_help=True)
application.add_typer(dead, name="dead-letters")

_PAGE = 500

Letter = Annotated[int | None, typer.Argument(help="The number of a dead letter.")]
Everything = Annotated[bool, typer.Option("--all", help="Every dead letter of the agent.")]


@dead.command("list")
@takes(ListDeadLetters)
def list_dead_letters(context: typer.Context, call: ListDeadLetters, as_json: AsJson = False) -> None:
    """List dead letters, newest first."""
    command = invocation(context)
    listed = command.send(call).dead_letters
    print_list(
        listed,
        as_json,
        ("id", "agent", "stage", "item", "at", "error"),
        ((x.id, x.agent, x.stage, shortened(x.item_id, 20), when(x.created_at), shortened(x.error)) for x in listed),
        empty=lambda: _none_text(command, call),
    )


def _none_text(command: Invocation, call: ListDeadLetters) -> str:
    if call.all_agents and not call.offset:
        return f"No agent has dead letters in workspace {command.workspace}."
    return command.none_of("dead letters", call)


@dead.command("show")
@takes(GetDeadLetter, arguments=("letter_id",))
def show_dead_letter(context: typer.Context, call: GetDeadLetter, as_json: AsJson = False) -> None:
    """Show a dead letter with its payload and error."""
    print_struct(invocation(context).send(call), as_json)


@dead.command("replay")
def replay_dead_letters(
    context: typer.Context, letter: Letter = None, everything: Everything = False, as_json: AsJson = False
) -> None:
    """Queue dead letters again, once the cause of their failure is gone, and say what became of each."""
    command = invocation(context)
    # Nothing becomes of it while no workers run; with many, waiting for each would take minutes.
    wait = 5.0 if letter is not None and command.target.url is not None else 0.0
    replayed: dict[str, list[int]] = {"queued": [], "succeeded": [], "failed": []}
    refused: dict[int, str] = {}
    for letter_id in _chosen_letters(command, letter, everything):
        try:
            result = command.send(ReplayDeadLetter(letter_id, timeout_seconds=wait))
        except (Conflict, Rejected) as error:
            if not everything:
                raise
            refused[letter_id] = str(error)
        else:
            replayed[result.replay or "queued"].append(letter_id)
            if result.replay == "failed":
                refused[letter_id] = f"it failed again, and is now dead letter {result.id}: {result.error}"
    text = ", ".join(f"{len(ids)} {state}" for state, ids in replayed.items() if ids) or "nothing to replay"
    print_result({**replayed, "refused": {str(key): value for key, value in refused.items()}}, as_json, f"{text}.")
    for letter_id, reason in refused.items():
        note(f"reverie: dead letter {letter_id}: {reason}")
    raise typer.Exit(1 if refused else 0)


@dead.command("drop")
def drop_dead_letters(
    context: typer.Context, letter: Letter = None, everything: Everything = False, as_json: AsJson = False
) -> None:
    """Delete dead letters for good."""
    command = invocation(context)
    chosen = list(_chosen_letters(command, letter, everything))
    dropped = [letter_id for letter_id in chosen if command.send(DropDeadLetter(letter_id)).deleted]
    if letter is not None and not dropped:
        raise NotFound(f"agent {command.agent} has no dead letter {letter}", field="letter")
    print_result({"dropped": dropped}, as_json, f"{len(dropped)} dropped.")


def _chosen_letters(command: Invocation, letter: int | None, everything: bool) -> Iterator[int]:
    """Yield the named letter, or all that the agent has now. Raises `Rejected` unless one or all are asked for."""
    if (letter is None) == (not everything):
        raise Rejected("name one dead letter, or --all", field="letter")
    if letter is not None:
        yield letter
        return
    ids: list[int] = []
    while page := command.send(ListDeadLetters(limit=_PAGE, offset=len(ids))).dead_letters:
        ids += [entry.id for entry in page]
    yield from ids
