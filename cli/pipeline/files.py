"""`reverie files`: hand over, list and delete text files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.application import application, invocation
from cli.input import bytes_of
from cli.options import takes
from cli.output import AsJson, Yes, confirm, print_deleted, print_json, print_list, progress_bar, say, when
from cli.pipeline.ingest import client
from reverie.counts import counted
from reverie.errors import Rejected
from reverie.pipeline.calls import DeleteFile, ListFiles

files = typer.Typer(help="Hand over, list and delete text files.", no_args_is_help=True)
application.add_typer(files, name="files")


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
                failed[str(path)] = str(error).removeprefix(f"{path} ")
    if as_json:
        print_json({"accepted": done, "failed": failed})
    else:
        say(f"{len(done):,} of {counted(len(paths), 'file')} {wait}.")
        for path_text, reason in failed.items():
            say(f"  {path_text}: {reason}")
    raise typer.Exit(1 if failed else 0)


@files.command("list")
@takes(ListFiles)
def list_files(context: typer.Context, call: ListFiles, as_json: AsJson = False) -> None:
    """List the files that were handed over, newest first."""
    command = invocation(context)
    listed = command.send(call).files
    print_list(
        listed,
        as_json,
        ("id", "session", "created", "uri"),
        ((file.id, file.session or "-", when(file.created_at), file.source_uri) for file in listed),
        empty=lambda: command.none_of("files", call),
    )


@files.command("delete")
@takes(DeleteFile, arguments=("id",))
def delete_file(context: typer.Context, call: DeleteFile, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a file for good, with its chunks, vectors and index entries."""
    command = invocation(context)
    confirm(f"Delete file {call.id!r} of agent {command.agent} for good?", yes)
    print_deleted(command.send(call).deleted, as_json, missing=command.missing("file", call.id))


def _text_of(path: Path) -> str:
    try:
        return bytes_of(path).decode()
    except UnicodeDecodeError as error:
        raise Rejected(f"{path} is not UTF-8 text: byte {error.start} is invalid", field="file") from error
