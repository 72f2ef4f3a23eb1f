"""`reverie ingest`, `recall` and `files add`: send messages and files to a running Reverie, and recall from it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.application import Invocation, application, invocation
from cli.options import takes
from cli.output import AsJson, print_json, progress_bar, say, shortened, when
from reverie import contract
from reverie.client import Reverie
from reverie.errors import Rejected, Rejection
from reverie.pipeline.conversation_files import SESSION_FIELDS, ingest_calls, read_items
from reverie.recall.calls import Recall
from reverie.recall.types import Explanation, RecallResponse

_BATCH = 500

files = typer.Typer(help="Hand over text files.", no_args_is_help=True)
application.add_typer(files, name="files")


@application.command()
def ingest(
    context: typer.Context,
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
    those that do not.
    """
    if wait not in contract.WAITS:
        raise Rejected(f"--wait is {wait!r}; it must be one of {', '.join(contract.WAITS)}", field="wait")
    command = invocation(context)
    defaults = {"session": session, "user": user, "provider": provider, "chat_id": chat_id, "channel": channel}
    calls = ingest_calls(_read(file), defaults=defaults, batch_size=_BATCH)
    total = sum(len(call.messages) for call in calls)
    accepted, degraded = 0, ""
    rejected: list[dict[str, Any]] = []
    with client(command) as memory, progress_bar("messages") as bar:
        task = bar.add_task("", total=total)
        for call in calls:
            place = accepted + len(rejected)
            where = {name: getattr(call, name) for name in SESSION_FIELDS if name != "session"}
            try:
                receipt = memory.ingest(call.session, call.messages, wait=wait, timeout_seconds=timeout, **where)
            except KeyboardInterrupt:
                # Whether the current batch arrived is unknown; it is not counted.
                bar.stop()
                typer.echo(f"reverie: interrupted: {accepted} of {total} messages had been handed over", err=True)
                raise typer.Exit(130) from None
            except Rejected as error:
                # Either single messages are invalid, or something that all of them share.
                whole = [Rejection(index=i, field=error.field, error=str(error)) for i in range(len(call.messages))]
                rejected += _rejected(error.items or whole, place)
            else:
                accepted += len(receipt.accepted)
                rejected += _rejected(receipt.rejected, place)
                degraded = receipt.degraded or degraded
            bar.advance(task, len(call.messages))
    if as_json:
        print_json({"accepted": accepted, "state": wait, "rejected": rejected, "degraded": degraded})
    else:
        say(f"{accepted} of {total} messages {wait}." + (f" ({degraded})" if degraded else ""))
        for item in rejected[:20]:
            say(f"  message {item['index']}: {item['error']}")
        if len(rejected) > 20:
            say(f"  and {len(rejected) - 20} more")
    raise typer.Exit(1 if rejected else 0)


@application.command()
@takes(Recall, arguments=("query",), leave_out=("query_embedding", "fts_weight"))
def recall(context: typer.Context, call: Recall, as_json: AsJson = False) -> None:
    """Recall messages, files and memories that fit a query, best first. Asks the running server."""
    with client(invocation(context), over_http=True) as reverie:
        response = reverie.connection.send(call)
    if as_json:
        print_json(response)
    else:
        _print_recall(response)


@files.command("add")
def add_files(
    context: typer.Context,
    paths: list[Path],
    session: Annotated[str | None, typer.Option(help="The session of the files.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag for all files.")] = None,
    wait: Annotated[str, typer.Option(help="Wait until they are queued, stored or searchable.")] = "stored",
    as_json: AsJson = False,
) -> None:
    """Hand over text files; an unchanged file is not indexed again."""
    done, failed = [], {}
    with client(invocation(context)) as memory, progress_bar("files") as bar:
        for path in bar.track(paths):
            try:
                content = _text_of(path)
                receipt = memory.ingest_file(
                    path.resolve().as_uri(),
                    content,
                    session=session,
                    tags=tag or [],
                    wait=wait,  # type: ignore[arg-type]
                )
                done += receipt.accepted
            except Rejected as error:
                failed[str(path)] = str(error)
    if as_json:
        print_json({"accepted": done, "failed": failed})
    else:
        say(f"{len(done)} of {len(paths)} files {wait}.")
        for path_text, reason in failed.items():
            say(f"  {path_text}: {reason}")
    raise typer.Exit(1 if failed else 0)


def client(command: Invocation, *, over_http: bool = False) -> Reverie:
    """Return a client for the agent, workspace and addresses of this command."""
    settings = command.settings
    return Reverie(
        agent=command.agent,
        workspace=settings.workspace,
        broker=None if over_http else settings.broker_url,
        prefix=settings.broker_prefix,
        url=command.server_url if over_http else None,
    )


def _read(file: str) -> list[Any]:
    """Return the messages or conversations in a file. Raises `Rejected` with the line that is not JSON."""
    return read_items(input_of(Path(file)), name=file)


def _rejected(faults: Iterable[Rejection], place: int) -> list[dict[str, Any]]:
    """Return the rejections of a batch, with their positions in the whole file."""
    return [{"index": place + fault.index, "field": fault.field, "error": fault.error} for fault in faults]


def input_of(path: Path) -> bytes:
    """Return the content of a file, or of standard input for `-`. Raises `Rejected`."""
    return sys.stdin.buffer.read() if str(path) == "-" else _bytes_of(path)


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Rejected(f"{path} cannot be read: {error.strerror}", field="file") from error


def _text_of(path: Path) -> str:
    try:
        return _bytes_of(path).decode()
    except UnicodeDecodeError as error:
        raise Rejected(f"{path} is not UTF-8 text: byte {error.start} is invalid", field="file") from error


def _print_recall(response: RecallResponse) -> None:
    if response.degraded:
        say(f"({response.degraded})")
    for place, memory in enumerate(response.results, start=1):
        who = memory.name or memory.role or " ".join(part for part in (memory.tier, memory.kind) if part)
        for turn in memory.before:
            say(f"     {turn.name or turn.role}: {shortened(turn.text, 120)}")
        say(f"{place}. {when(memory.created_at)}  {who}: {shortened(memory.excerpt or memory.text, 200)}")
        for turn in memory.after:
            say(f"     {turn.name or turn.role}: {shortened(turn.text, 120)}")
        if memory.explanation is not None:
            say(f"     {_explained(memory.explanation)}")
    if not response.results:
        say("Nothing found.")


def _explained(explanation: Explanation) -> str:
    names = ("keyword", "keyword_around", "vector", "vector_around", "speaker", "date")
    scores = [(name.replace("_", " "), getattr(explanation, name)) for name in names]
    parts = [f"{name} rank {one.rank} ({one.normalised:.3f})" for name, one in scores if one is not None]
    return f"score {explanation.score:.3f}: " + (", ".join(parts) or "-")
