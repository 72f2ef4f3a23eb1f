"""`reverie memory export` and `import`: an agent's memories, facts and notes as one document, carried elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memory.memories.transfer import export_memories, import_memories, read_export
from worker.cli.application import invocation
from worker.cli.memories.memories import memories_of, memory
from worker.cli.output import AsJson, ExportFile, counted, print_json, progress_bar, say, write_export
from worker.cli.pipeline.ingest import input_of


@memory.command("export")
def export(
    context: typer.Context,
    output: ExportFile = None,
    as_json: AsJson = False,
) -> None:
    """Every memory, fact and note that stands, as JSON with a schema version."""
    document = export_memories(memories_of(invocation(context)))
    write_export(document, output, "memory", len(document.memories), as_json=as_json)


@memory.command("import")
def import_(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="An export, or - for standard input.")],
    as_json: AsJson = False,
) -> None:
    """Add the memories of an export that are not there yet."""
    call = invocation(context)
    document = read_export(input_of(file))
    with progress_bar("memories") as bar:
        shown = bar.add_task("memories", total=None)
        done, written = import_memories(
            memories_of(call),
            document,
            now=call.runtime.now(),
            progress=lambda done, total: bar.update(shown, completed=done, total=total),
        )
    for store in written:
        call.runtime.notify_stage("chunk", store.name)
    told = f"{counted(done.added, 'memory')} added, {done.present:,} were there already."
    print_json(done) if as_json else say(told)
