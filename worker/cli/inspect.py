"""Commands that look at what is there: sessions, dead letters, jobs. They work on the data folder itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from memory import dead_letters as letters
from memory.forgetting import forget_session
from memory.working import as_message
from reverie import contract
from reverie.clock import from_micros, rfc3339
from reverie.errors import NotFound, Rejected
from storage.records import DeadLetter, MessageRecord, SessionRecord
from worker.cli.application import Invocation, application, invocation
from worker.cli.output import AsJson, print_json, print_table, say, shortened, when

sessions = typer.Typer(help="Conversations.", no_args_is_help=True)
dead = typer.Typer(help="Work that cannot succeed by itself.", no_args_is_help=True)
application.add_typer(sessions, name="sessions")
application.add_typer(dead, name="dead-letters")

_PAGE = 500
_JOBS = {
    "recover-inbox": contract.RECOVER_INBOX,
    "sweep-stages": contract.SWEEP_STAGES,
    "backfill-embeddings": contract.BACKFILL_EMBEDDINGS,
    "optimize-store": contract.OPTIMIZE_STORE,
    "verify-store": contract.VERIFY_STORE,
}


@sessions.command("list")
def list_sessions(
    context: typer.Context,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 50,
    offset: Annotated[int, typer.Option(min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """The agent's sessions, the most recently active first."""
    call = invocation(context)
    store = call.runtime.stores.workspace(call.settings.workspace, create=False)
    with store.reading() as tx:
        found = tx.for_agent(call.agent).sessions.list(limit=limit, offset=offset)
    if as_json:
        print_json([_session(record) for record in found])
        return
    print_table(
        ("session", "ref", "status", "messages", "updated"),
        [(shortened(s.id, 40), s.ref_code, s.status, s.messages, when(s.updated_at)) for s in found],
        empty=f"agent {call.agent} has no sessions in workspace {call.settings.workspace}",
    )


@sessions.command("show")
def show_session(
    context: typer.Context,
    session: str,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="The newest messages.")] = 50,
    as_json: AsJson = False,
) -> None:
    """A session's newest messages, in the order in which they were said."""
    call = invocation(context)
    with call.runtime.stores.workspace(call.settings.workspace, create=False).reading() as tx:
        rows = tx.for_agent(call.agent)
        record = rows.sessions.get(session)
        found = rows.messages.of_session(record.row_id, limit=limit, newest=True)
    if as_json:
        print_json({**_session(record), "messages": [as_message(message) for message in found]})
        return
    for message in found:
        say(f"{when(message.created_at)}  {message.name or message.role}: {message.content}")


@sessions.command("export")
def export_session(
    context: typer.Context,
    session: str,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file; else standard output.")] = None,
) -> None:
    """A session with all its messages as JSON with a schema version."""
    call = invocation(context)
    document = _export(call, session)
    if output is None:
        print_json(document)
        return
    output.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2))
    say(f"{len(document['messages'])} messages written to {output}")


@sessions.command("delete")
def delete_session(
    context: typer.Context,
    session: str,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Forget a session: its messages, chunks, vectors and words, and what is still on its way."""
    call = invocation(context)
    if not yes:
        typer.confirm(f"Forget session {session!r} of agent {call.agent} for good?", abort=True)
    here = call.runtime
    store = here.stores.workspace(call.settings.workspace, create=False)
    found = forget_session(store, here.inbox, here.working, agent=call.agent, session=session)
    if as_json:
        print_json({"forgotten": found})
    else:
        say("Forgotten." if found else "There was no such session; what is on its way for it will not be stored.")


@dead.command("list")
def list_dead_letters(
    context: typer.Context, limit: Annotated[int, typer.Option(min=1, max=1000)] = 50, as_json: AsJson = False
) -> None:
    """Dead letters of the workspace, the newest first."""
    call = invocation(context)
    with call.runtime.stores.workspace(call.settings.workspace, create=False).reading() as tx:
        found = tx.dead_letters.list(limit=limit)
    if as_json:
        print_json([_letter(letter) for letter in found])
        return
    print_table(
        ("id", "agent", "stage", "item", "at", "error"),
        [(x.id, x.agent, x.stage, shortened(x.item_id, 20), when(x.created_at), shortened(x.error)) for x in found],
        empty="There are no dead letters.",
    )


@dead.command("show")
def show_dead_letter(context: typer.Context, letter: int, as_json: AsJson = False) -> None:
    """One dead letter with its payload and error."""
    call = invocation(context)
    with call.runtime.stores.workspace(call.settings.workspace, create=False).reading() as tx:
        found = _letter(tx.dead_letters.get(letter), with_payload=True)
    if as_json:
        print_json(found)
        return
    for name, value in found.items():
        say(f"{name:>10}: {value}")


@dead.command("replay")
def replay_dead_letters(
    context: typer.Context,
    letter: Annotated[int | None, typer.Argument(help="Its id.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every dead letter of the workspace.")] = False,
    as_json: AsJson = False,
) -> None:
    """Try again what failed for good, once its cause is gone."""
    call = invocation(context)
    here = call.runtime
    store = here.stores.workspace(call.settings.workspace, create=False)
    done, failed = [], {}
    for letter_id in _chosen_letters(call, letter, everything):
        try:
            replayed = letters.replay(store, here.inbox, letter_id)
        except Rejected as error:
            if not everything:
                raise
            failed[letter_id] = str(error)
            continue
        here.wake(replayed.stage, store.name)
        done.append(letter_id)
    if as_json:
        print_json({"replayed": done, "failed": {str(key): value for key, value in failed.items()}})
    else:
        say(f"{len(done)} replayed." if not failed else f"{len(done)} replayed, {len(failed)} cannot be: {failed}")
    raise typer.Exit(1 if failed else 0)


@dead.command("drop")
def drop_dead_letters(
    context: typer.Context,
    letter: Annotated[int | None, typer.Argument(help="Its id.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every dead letter of the workspace.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove dead letters for good."""
    call = invocation(context)
    store = call.runtime.stores.workspace(call.settings.workspace, create=False)
    dropped = [letters.drop(store, letter_id).id for letter_id in _chosen_letters(call, letter, everything)]
    if as_json:
        print_json({"dropped": dropped})
    else:
        say(f"{len(dropped)} dropped.")


@application.command()
def run(
    context: typer.Context,
    job: Annotated[str, typer.Argument(help="One of: " + ", ".join(_JOBS) + ".")],
    as_json: AsJson = False,
) -> None:
    """Run a periodic job here and now, whatever its clock says."""
    if job not in _JOBS:
        raise Rejected(f"no such job: {job}; there are {', '.join(_JOBS)}", field="job")
    call = invocation(context)
    from worker.cli.stack import pass_on

    pass_on(call.settings)
    from worker.app import app

    app.loader.import_default_modules()
    counts = dict(app.tasks[_JOBS[job]].body(by_hand=True))
    if as_json:
        print_json(counts)
    else:
        print_table(("count", "value"), counts.items(), empty="Nothing to do.")


def _chosen_letters(call: Invocation, letter: int | None, everything: bool) -> list[int]:
    if (letter is None) == (not everything):
        raise Rejected("name one dead letter, or --all", field="letter")
    if letter is not None:
        return [letter]
    store = call.runtime.stores.workspace(call.settings.workspace, create=False)
    found: list[int] = []
    with store.reading() as tx:
        while page := tx.dead_letters.list(limit=_PAGE, offset=len(found)):
            found += [entry.id for entry in page]
    return found


def _export(call: Invocation, session: str) -> dict[str, Any]:
    messages: list[MessageRecord] = []
    with call.runtime.stores.workspace(call.settings.workspace, create=False).reading() as tx:
        rows = tx.for_agent(call.agent)
        record = rows.sessions.find(session)
        if record is None:
            raise NotFound(f"agent {call.agent} has no session {session!r}", field="session")
        while page := rows.messages.of_session(record.row_id, limit=_PAGE, offset=len(messages)):
            messages += page
    return {
        "schema_version": 1,
        "agent": call.agent,
        "session": _session(record),
        "messages": [as_message(message) for message in messages],
    }


def _session(record: SessionRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "ref_code": record.ref_code,
        "status": record.status,
        "user": record.user,
        "provider": record.provider,
        "chat_id": record.chat_id,
        "channel": record.channel,
        "started_at": rfc3339(record.started_at),
        "updated_at": rfc3339(record.updated_at),
        "message_count": record.messages,
        "last_sequence": record.last_sequence,
        "metadata": record.metadata,
    }


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
