"""`reverie ingest`, `recall` and `files add`: send messages and files to a running Reverie, and recall from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.application import Invocation, application, invocation
from cli.input import input_of
from cli.output import AsJson, print_json, progress_bar, say
from reverie import contract
from reverie.calls import validated
from reverie.client import Reverie
from reverie.counts import counted
from reverie.errors import NotFound, Rejected, Rejection
from reverie.pipeline.conversation_files import SESSION_FIELDS, exported_sessions, ingest_calls, read_items
from reverie.sessions.calls import GetSession, StartSession

_BATCH = 500
# Rejected messages that are named.
_SHOWN = 20


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
    those that do not. An exported session is a conversation, too; its metadata is kept unless the session exists.
    """
    if wait not in contract.WAITS:
        raise Rejected(f"--wait is {wait!r}; it must be one of {', '.join(contract.WAITS)}", field="wait")
    command = invocation(context)
    defaults = {"session": session, "user": user, "provider": provider, "chat_id": chat_id, "channel": channel}
    items = _read(file)
    calls = ingest_calls(items, defaults=defaults, batch_size=_BATCH)
    for start in exported_sessions(items):
        _start_unless_known(command, start)
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
                typer.echo(
                    f"reverie: interrupted: {accepted:,} of {counted(total, 'message')} had been handed over", err=True
                )
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
    """Return a client that hands over messages: to the server that is named, else through the broker, else its server.

    Where no server runs on the data folder, none is tried: that of the environment, or the one that listens on the
    default port, may be of another Reverie, which would keep the messages.
    """
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


def _rejected(faults: Iterable[Rejection], place: int) -> list[dict[str, Any]]:
    """Return the rejections of a batch, with their positions in the whole file."""
    return [{"index": place + fault.index, "field": fault.field, "error": fault.error} for fault in faults]
