"""`reverie status`: the whole pipeline on one screen. Read from the files and the broker, the server need not be up."""

from __future__ import annotations

from typing import Annotated

import typer

from adapters.embedders.resilience import GuardedEmbedder
from memory.status import StatusReader
from reverie.status import PipelineStatus
from worker.cli.application import Invocation, application, invocation
from worker.cli.output import AsJson, print_json, print_table, say, size, when
from worker.up_file import supervisor_pid


@application.command()
def status(
    context: typer.Context,
    as_json: AsJson = False,
    check: Annotated[bool, typer.Option("--check", help="Exit code 1 when something is wrong.")] = False,
) -> None:
    """How the pipeline is: what waits, who works, how long messages take."""
    call = invocation(context)
    found = read_status(call)
    if as_json:
        print_json(found)
    else:
        _print(call, found)
    working = any(worker.queues for worker in found.workers)
    wrong = found.broker == "down" or not working or bool(found.errors)
    raise typer.Exit(1 if check and wrong else 0)


def read_status(call: Invocation) -> PipelineStatus:
    """The status as this process sees it. It loads no model: what the embedder does, the workers tell."""
    here = call.runtime
    no_embedder: GuardedEmbedder | None = None
    return StatusReader(here.stores, here.inbox, here.pulse, no_embedder).read(now=here.now())


def _print(call: Invocation, found: PipelineStatus) -> None:
    pid = supervisor_pid(call.settings.data)
    say(f"Reverie   {f'up (pid {pid})' if pid else 'not started by `reverie up` here'}")
    say(f"Broker    {found.broker}{f': {found.broker_error}' if found.broker_error else ''}")
    lag = found.lag
    if lag.samples:
        say(f"Lag       p50 {_seconds(lag.p50_seconds)}, p99 {_seconds(lag.p99_seconds)} of {lag.samples} in 5 minutes")
    else:
        say("Lag       nothing became searchable in the last 5 minutes")
    embedders = sorted({worker.embedder for worker in found.workers if worker.embedder})
    say(f"Embedder  {'; '.join(embedders) or call.settings.embedding_provider + ', not used yet'}")
    say(f"Dead      {found.dead_letters} dead letters" + (" (reverie dead-letters list)" if found.dead_letters else ""))
    say(f"Log       {size(found.wal_bytes)} of write-ahead log in {found.workspaces_total} workspaces")
    say()
    _print_backlog(found)
    say()
    print_table(
        ("worker", "pid", "queues", "last progress", "tasks"),
        [(w.name, w.pid, ",".join(w.queues) or "-", when(w.progress_at), w.tasks_done) for w in found.workers],
        empty="No worker is alive. Start everything with `reverie up`.",
    )
    say()
    print_table(
        ("job", "last run", "ended", "result"),
        [
            (name.removeprefix("reverie."), when(job.started_at), when(job.finished_at), job.error or "ok")
            for name, job in found.jobs.items()
        ],
        empty="No periodic job has run yet.",
    )
    for name, error in found.errors.items():
        say(f"{name}: {error}")


def _print_backlog(found: PipelineStatus) -> None:
    rows: list[tuple[object, ...]] = [
        (f"inbox {inbox.workspace}", inbox.size, f"{inbox.oldest_age_seconds:.1f} s", "-", "-")
        for inbox in found.inboxes
    ]
    rows += [
        (stage, state.waiting, f"{state.oldest_age_seconds:.1f} s", state.held, state.retrying)
        for stage, state in found.stages.items()
        if state.waiting or state.retrying
    ]
    rows += [(f"queue {queue}", depth, "-", "-", "-") for queue, depth in found.queues.items() if depth]
    print_table(("waiting", "count", "oldest", "held", "retrying"), rows, empty="Nothing waits.")


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value * 1_000:.0f} ms" if value < 10 else f"{value:.1f} s"
