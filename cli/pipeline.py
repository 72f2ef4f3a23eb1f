"""`reverie ingest`, `files` and `dead-letters`: hand over messages and files, and see to work that failed for good."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.application import Invocation
from cli.groups import Group, Row, all_pages, root
from cli.output import (
    AsJson,
    Yes,
    bytes_of,
    confirm,
    input_of,
    note,
    print_deleted,
    print_json,
    print_result,
    progress_bar,
    say,
    shortened,
    when,
)
from reverie import contract
from reverie.calls import validated
from reverie.contract import MAX_FILE_BYTES
from reverie.counts import counted
from reverie.errors import Conflict, NotFound, Rejected, Rejection
from reverie.pipeline import calls
from reverie.pipeline.conversation_files import SESSION_FIELDS, exported_sessions, ingest_calls, read_items
from reverie.sessions.calls import GetSession, StartSession

if TYPE_CHECKING:
    from reverie.client import Reverie

_BATCH = 500
# How many rejected messages are listed.
_SHOWN = 20


@root.command("ingest")
def ingest(
    command: Invocation,
    file: Annotated[str, typer.Argument(help="A file of JSON or JSONL, or - for standard input.")],
    session: Annotated[str | None, typer.Option(help="The session of messages that name none.")] = None,
    user: Annotated[str | None, typer.Option(help="The end user of messages that name none.")] = None,
    provider: Annotated[str | None, typer.Option(help="The chat platform of messages that name none.")] = None,
    chat_id: Annotated[str | None, typer.Option(help="The chat on that platform, for messages that name none.")] = None,
    channel: Annotated[str | None, typer.Option(help="The channel of messages that name none.")] = None,
    wait: Annotated[str, typer.Option(help="Wait until they are queued, stored or searchable.")] = "queued",
    timeout: Annotated[
        float,
        typer.Option(min=0.1, max=contract.MAX_WAIT_SECONDS, help="Wait this many seconds for each batch."),
    ] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Hand over messages: a JSON list, one message per line, or conversations with `session` and `messages`.

    A message or a conversation may name `session`, `user`, `provider`, `chat_id` and `channel`; the options are for
    those that do not. An exported session is a conversation, too; its metadata is kept unless the session exists.
    """
    wait_for = _checked_wait(wait)
    defaults = {"session": session, "user": user, "provider": provider, "chat_id": chat_id, "channel": channel}
    items = _read(file)
    batches = ingest_calls(items, defaults=defaults, batch_size=_BATCH)
    for start in exported_sessions(items):
        _start_unless_known(command, start)
    total = sum(len(batch.messages) for batch in batches)
    accepted, degraded = 0, ""
    rejected: list[dict[str, Any]] = []
    with client(command) as memory, progress_bar("messages") as bar:
        task = bar.add_task("", total=total)
        for batch in batches:
            place = accepted + len(rejected)
            where = {name: getattr(batch, name) for name in SESSION_FIELDS if name != "session"}
            try:
                receipt = memory.ingest(batch.session, batch.messages, wait=wait_for, timeout_seconds=timeout, **where)
            except KeyboardInterrupt:
                # Whether the current batch arrived is unknown; it is not counted.
                bar.stop()
                typer.echo(
                    f"reverie: interrupted: {accepted:,} of {counted(total, 'message')} had been handed over", err=True
                )
                raise typer.Exit(130) from None
            except Rejected as error:
                # Either single messages are invalid (`error.items`), or a field that all messages share.
                whole = [Rejection(index=i, field=error.field, error=str(error)) for i in range(len(batch.messages))]
                rejected += _rejected(error.items or whole, place)
            else:
                accepted += len(receipt.accepted)
                rejected += _rejected(receipt.rejected, place)
                degraded = receipt.degraded or degraded
            bar.advance(task, len(batch.messages))
    if as_json:
        print_json({"accepted": accepted, "state": wait, "rejected": rejected, "degraded": degraded})
    else:
        say(f"{accepted:,} of {counted(total, 'message')} {wait}." + (f" ({degraded})" if degraded else ""))
        _print_rejected(rejected)
    raise typer.Exit(1 if rejected else 0)


def _print_rejected(rejected: Sequence[Mapping[str, Any]]) -> None:
    for item in rejected[:_SHOWN]:
        say(f"  message {item['index']}: {item['error']}")
    if len(rejected) > _SHOWN:
        say(f"  and {len(rejected) - _SHOWN} more")


def _start_unless_known(command: Invocation, start: StartSession) -> None:
    try:
        command.send(GetSession(start.session))
    except NotFound:
        command.send(validated(start))


def client(command: Invocation) -> Reverie:
    """Return a client that ingests messages: into the named server, else the broker, else the folder's server.

    If no server runs on the data folder, no other server is tried: the server in the environment, or on the default
    port, may belong to another installation, which would keep the messages.
    """
    from reverie.client import Reverie

    target = command.target
    if target.is_remote:
        return Reverie(agent=command.agent, workspace=command.workspace, url=target.url)
    settings = command.settings
    memory = Reverie(
        agent=command.agent,
        workspace=command.workspace,
        broker=settings.broker_url,
        prefix=settings.broker_prefix,
        url=target.url,
    )
    if target.server is None:
        memory.connection.config = replace(memory.connection.config, url_given=False)
    return memory


def _read(file: str) -> list[Any]:
    """Return the messages or conversations in a file. Raises `Rejected` with the line that is not JSON."""
    return read_items(input_of(Path(file)), name="standard input" if file == "-" else file)


def _checked_wait(wait: str) -> contract.WaitFor:
    """Return the wait. Raises `Rejected` for one that does not exist: before anything is read or handed over."""
    if wait not in contract.WAITS:
        raise Rejected(f"--wait is {wait!r}; it must be one of {', '.join(contract.WAITS)}", field="wait")
    return wait


def _rejected(faults: Iterable[Rejection], place: int) -> list[dict[str, Any]]:
    """Return the rejections of a batch, with their positions in the whole file."""
    return [{"index": place + fault.index, "field": fault.field, "error": fault.error} for fault in faults]


files = Group("files")


@files.command("add")
def add_files(
    command: Invocation,
    paths: Annotated[list[Path], typer.Argument(help="The text files.")],
    session: Annotated[str | None, typer.Option(help="The session of the files.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag for all files.")] = None,
    wait: Annotated[str, typer.Option(help="Wait until they are queued, stored or searchable.")] = "stored",
    as_json: AsJson = False,
) -> None:
    """Store text files; parts that have not changed are not indexed again."""
    wait_for = _checked_wait(wait)
    done, failed = [], {}
    with client(command) as memory, progress_bar("files") as bar:
        for path in bar.track(paths):
            try:
                content = _text_of(path)
                receipt = memory.files.add(
                    path.resolve().as_uri(),
                    content,
                    session=session,
                    tags=tag or [],
                    wait=wait_for,
                )
                done += receipt.accepted
            except Rejected as error:
                failed[str(path)] = str(error).removeprefix(f"{path} ")
    if as_json:
        print_json({"accepted": done, "failed": failed})
    else:
        say(f"{len(done):,} of {counted(len(paths), 'file')} {wait}.")
        for path_text, reason in failed.items():
            say(f"  {path_text}: {reason}")
    raise typer.Exit(1 if failed else 0)


@files.lists("list", calls.ListFiles, ("id", "session", "created", "uri"), none="files")
def _file_row(file: calls.File) -> Row:
    """List the files that were handed over, newest first."""
    return file.id, file.session or "-", when(file.created_at), file.source_uri


@files.command("delete", calls.DeleteFile, arguments=("id",), helps={"id": "The id, address or path of a file."})
def delete_file(command: Invocation, call: calls.DeleteFile, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a file for good, with its chunks, vectors and index entries."""
    names = (call.id, Path(call.id).resolve().as_uri())
    if not yes:
        listed = all_pages(command, calls.ListFiles(user=call.user))
        if not any(name in (file.id, file.source_uri) for file in listed for name in names):
            raise command.missing("file", call.id)
    confirm(f"Delete file {call.id!r} of agent {command.agent} for good?", yes)
    deleted = any(command.send(calls.DeleteFile(name, user=call.user)).deleted for name in names)
    print_deleted(deleted, as_json, missing=command.missing("file", call.id))


def _text_of(path: Path) -> str:
    content = bytes_of(path, limit=MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise Rejected(f"{path} is longer than {MAX_FILE_BYTES // 1024**2} MiB", field="file")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise Rejected(f"{path} is not UTF-8 text: byte {error.start} is invalid", field="file") from error


dead = Group("dead-letters")

Letter = Annotated[int | None, typer.Argument(help="The number of a dead letter.")]
Everything = Annotated[bool, typer.Option("--all", help="Every dead letter of the agent.")]


def _empty_text(call: calls.ListDeadLetters) -> str:
    of_all = call.all_agents and not call.offset
    return "No agent has dead letters in workspace {workspace}." if of_all else "dead letters"


@dead.lists("list", calls.ListDeadLetters, ("id", "agent", "stage", "item", "at", "error"), none=_empty_text)
def _letter_row(letter: calls.DeadLetter) -> Row:
    """List dead letters, newest first."""
    item, at = shortened(letter.item_id, 20), when(letter.created_at)
    return letter.id, letter.agent, letter.stage, item, at, shortened(letter.error)


dead.shows("show", calls.GetDeadLetter, "Show a dead letter with its payload and error.", arguments=("letter_id",))


@dead.command("replay")
def replay_dead_letters(
    command: Invocation, letter: Letter = None, everything: Everything = False, as_json: AsJson = False
) -> None:
    """Queue dead letters again, once the cause of their failure is gone, and say what became of each."""
    # Wait only for a single one and if a server runs: without workers it stays queued, and many would take minutes.
    wait = 5.0 if letter is not None and command.target.url is not None else 0.0
    replayed: dict[str, list[int]] = {"queued": [], "succeeded": [], "failed": []}
    refused: dict[int, str] = {}
    for letter_id in _chosen_letters(command, letter, everything):
        try:
            result = command.send(calls.ReplayDeadLetter(letter_id, timeout_seconds=wait))
        except (Conflict, Rejected) as error:
            if not everything:
                raise
            refused[letter_id] = str(error)
        else:
            replayed[result.replay or "queued"].append(letter_id)
            if result.replay == "failed":
                refused[letter_id] = f"it failed again: {result.error}"
    text = ", ".join(f"{len(ids)} {state}" for state, ids in replayed.items() if ids) or "nothing to replay"
    print_result({**replayed, "refused": {str(key): value for key, value in refused.items()}}, as_json, f"{text}.")
    for letter_id, reason in refused.items():
        note(f"reverie: dead letter {letter_id}: {reason}")
    raise typer.Exit(1 if refused else 0)


@dead.command("drop")
def drop_dead_letters(
    command: Invocation, letter: Letter = None, everything: Everything = False, as_json: AsJson = False
) -> None:
    """Delete dead letters for good."""
    chosen = list(_chosen_letters(command, letter, everything))
    dropped = [letter_id for letter_id in chosen if command.send(calls.DropDeadLetter(letter_id)).deleted]
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
    yield from [entry.id for entry in all_pages(command, calls.ListDeadLetters())]
