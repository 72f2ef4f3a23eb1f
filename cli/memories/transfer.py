"""`reverie memory export` and `import`: write an agent's memories, facts and notes as JSON, and read them back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.application import invocation
from cli.input import input_of
from cli.memories.memories import memory
from cli.options import takes
from cli.output import AsJson, ExportFile, print_result, progress_bar, write_export
from reverie.calls import validated
from reverie.counts import counted
from reverie.memories.calls import ExportMemories, ImportMemories


@memory.command("export")
@takes(ExportMemories)
def export(
    context: typer.Context,
    call: ExportMemories,
    output: ExportFile = None,
    as_json: AsJson = False,
) -> None:
    """Export all current memories, facts and notes as JSON with a schema version."""
    document = invocation(context).send(call)
    write_export(document, output, "memory", len(document.memories), as_json=as_json)


@memory.command("import")
def import_(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="The file with the export, or - for standard input.")],
    user: Annotated[
        str | None, typer.Option(help="The end user to whom all of them shall belong. Default: the owners they name.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Import the memories of an export that are not stored yet."""
    command = invocation(context)
    from reverie.memories.transfer import read_export, send_export

    user = validated(ImportMemories(memories=[], user=user)).user
    document = read_export(input_of(file))
    with progress_bar("memories") as bar:
        task = bar.add_task("memories", total=None)
        imported = send_export(
            command.send,
            document,
            user=user,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    text = f"{counted(imported.added, 'memory')} added, {imported.present:,} were already stored."
    print_result(imported, as_json, text)
