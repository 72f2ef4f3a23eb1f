"""`reverie status`: which Reverie a command uses, and the state of its pipeline; `reverie health`: of one process."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cli.application import Invocation
from cli.groups import Group, root
from cli.output import AsJson, print_json, print_table, say, say_beside, size, when
from cli.target import Target
from reverie import contract
from reverie.counts import counted, counts_text
from reverie.errors import Rejected, Unavailable
from reverie.pipeline.status import (
    EmbedderStatus,
    Finding,
    JobStatus,
    LanguageModelStatus,
    LanguageModelUse,
    PipelineStatus,
    TimeStatus,
)
from worker.supervision.data_lock import supervisor_pid
from worker.supervision.server_file import local_url

if TYPE_CHECKING:
    from adapters.broker.monitor import Monitor

_WORKSPACES_SHOWN: Final = 5


@root.command("status")
def status(
    command: Invocation,
    as_json: AsJson = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 when something is wrong.")] = False,
) -> None:
    """Show the state of the pipeline: backlog, workers, jobs and latency."""
    state = command.pipeline_status()
    if as_json:
        print_json(state)
    else:
        _print(command, state)
    is_wrong = any(finding.state == "problem" for finding in state.findings)
    raise typer.Exit(1 if check and is_wrong else 0)


def _print(command: Invocation, pipeline: PipelineStatus) -> None:
    target = command.target
    # A server elsewhere shows that it uses a database only by its hosts: a running one has joined them.
    in_database = bool(pipeline.hosts) or (target.url is None and command.settings.database is not None)
    say(f"Reverie   {_reverie(target, 'its database' if in_database else 'its files')}")
    if target.data is not None and not target.is_remote:
        say(f"Data      {target.data.resolve()}")
    say(f"Broker    {pipeline.broker}")
    for finding in pipeline.findings:
        if finding.state != "ok":
            _print_finding(finding)
    if pipeline.hosts:
        say(f"Hosts     {counted(len(pipeline.hosts), 'host')} of this database")
    _print_inbox(pipeline)
    embedders = sorted({worker.embedder for worker in pipeline.workers if worker.embedder})
    say(f"Embedder  {'; '.join(embedders) or _embedder(pipeline.embedder)}")
    for line in _language_model(pipeline):
        say(line)
    reranker = pipeline.reranker
    if reranker.state != "none":
        say(f"Reranker  {reranker.model}: {reranker.state}{f' ({reranker.error})' if reranker.error else ''}")
    say(f"Dead      {counted(pipeline.dead_letters, 'dead letter')}")
    say(f"Memories  {_memories(pipeline)}")
    for store in pipeline.workspaces:
        if store.full:
            say(f"Full      {store.name}: its quota of {', '.join(store.full)} is used up (`reverie quotas list`)")
    workspaces = counted(pipeline.workspaces_total, "workspace")
    log = f"Log       {size(pipeline.wal_bytes)} of write-ahead log in {workspaces}"
    say(f"Database  PostgreSQL, with {workspaces}" if in_database else log)
    for line in _time(pipeline.time):
        say(line)
    _print_tables(pipeline)


def _print_tables(pipeline: PipelineStatus) -> None:
    say()
    _print_backlog(pipeline)
    say()
    print_table(
        ("worker", "pid", "queues", "last progress", "tasks"),
        [(w.name, w.pid, ",".join(w.queues) or "-", when(w.progress_at), w.tasks_done) for w in pipeline.workers],
        empty="No worker is alive. Start everything with `reverie up`.",
    )
    say()
    print_table(
        ("job", "last run", "ended", "result"),
        [
            (
                contract.job_name(name),
                when(job.started_at),
                when(job.finished_at),
                _result(job, has_workers=bool(pipeline.workers)),
            )
            for name, job in pipeline.jobs.items()
        ],
        empty="No periodic job has run yet.",
    )


def _print_finding(finding: Finding) -> None:
    subject = "" if finding.subject == "Faults" else f"{finding.subject}: "
    say_beside(f"{finding.state.capitalize():<10}", f"{subject}{finding.found}", finding.advice)


def _print_inbox(pipeline: PipelineStatus) -> None:
    """Print how much waits to be stored, and how long messages took."""
    inbox = pipeline.inbox
    if inbox.items:
        say(f"Inbox     {counted(inbox.items, 'item')}, {size(inbox.bytes)}, wait to be stored: {inbox.full:.0%} full")
    lag = pipeline.lag
    if lag.samples:
        say(f"Lag       p50 {_seconds(lag.p50_seconds)}, p99 {_seconds(lag.p99_seconds)} of {lag.samples} in 5 minutes")
    else:
        say("Lag       no message became searchable in the last 5 minutes")


def _reverie(target: Target, source: str) -> str:
    """Return where the Reverie that the command uses is running, or that none is running."""
    if target.url is None:
        return f"not running: this is read from {source} (`reverie up` starts it)"
    pid = None if target.data is None or target.is_remote else supervisor_pid(target.data)
    return f"up at {target.url}" + (f" (pid {pid})" if pid else "")


def _embedder(status: EmbedderStatus) -> str:
    if status.state == "none":
        return "none: recall by keywords only"
    runs = "" if "auto" in (status.dtype, status.device) else f" {status.dtype} on {status.device}"
    return f"{status.model or 'model'}{runs}, not used yet"


def _memories(pipeline: PipelineStatus) -> str:
    """Return how many current memories there are, and in which workspaces most of them."""
    largest = sorted((line for line in pipeline.workspaces if line.memories), key=lambda line: -line.memories)
    shown = [f"{line.memories:,} in {line.name}" for line in largest[:_WORKSPACES_SHOWN]]
    rest = pipeline.memories - pipeline.account.memories - sum(line.memories for line in largest[:_WORKSPACES_SHOWN])
    shown += [f"{rest:,} in others"] if rest else []
    shown += [f"{pipeline.account.memories:,} in the account"] if pipeline.account.memories else []
    return ", ".join(shown) or "none yet"


def _language_model(pipeline: PipelineStatus) -> list[str]:
    """Return lines about the language model: its name, what workers report of it, and its use."""
    used = pipeline.language_model
    if used.state == "none" and not used.last_30_days.calls:
        return ["Model     no language model is set: jobs use rules"]
    models = sorted({worker.language_model for worker in pipeline.workers if worker.language_model})
    named = used.model if used.state != "none" else None
    return [
        f"Model     {'; '.join(models) or (f'{named}, not used yet' if named else 'no language model is set now')}",
        f"          today {_usage(used.today)}; last 30 days {_usage(used.last_30_days)}",
        *_token_budget(used),
    ]


def _token_budget(used: LanguageModelStatus) -> list[str]:
    """Return a line about the budget of a day, if there is one."""
    if used.daily_tokens is None:
        return []
    left = used.daily_tokens - used.today.input_tokens - used.today.output_tokens
    if left > 0:
        return [f"          {left:,} of {used.daily_tokens:,} tokens a day are left until midnight UTC"]
    return [f"          all {used.daily_tokens:,} tokens of today are used: it is not called until midnight UTC"]


def _time(scheduling: TimeStatus) -> list[str]:
    """Return a line about schedules, and one about reminders and notifications, when there are any."""
    lines = []
    if any(scheduling.schedules.values()):
        count = scheduling.schedules_overdue
        overdue = f"; {counted(count, 'schedule')} overdue" if count else ""
        lines.append(f"Schedules {_listed(scheduling.schedules)}{overdue}{_runs(scheduling)}")
    reminders = {"waiting": scheduling.reminders_waiting, "due": scheduling.reminders_due}
    notes, failed = scheduling.notifications_unacknowledged, scheduling.pushes_put_back
    if any(reminders.values()) or notes or failed:
        unseen = f"; {counted(notes, 'notification')} not acknowledged" if notes else ""
        pushes = f"; {failed:,} could not be pushed yet" if failed else ""
        lines.append(f"Reminders {_listed(reminders)}{unseen}{pushes}")
    return lines


def _runs(scheduling: TimeStatus) -> str:
    runs = {**scheduling.runs_open, "failed in a day": scheduling.runs_failed_last_day}
    lag = scheduling.start_lag
    started = f"; started p50 {_seconds(lag.p50_seconds)}, p99 {_seconds(lag.p99_seconds)} after they were due"
    return (f"; runs {_listed(runs)}" if any(runs.values()) else "") + (
        f"{started}, of {lag.samples:,} in an hour" if lag.samples else ""
    )


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "none"


def _usage(use: LanguageModelUse) -> str:
    failed = f" ({use.failures:,} failed)" if use.failures else ""
    cost = f", cost {use.cost:,.4f}" if use.cost else ""
    tokens = f"{counted(use.input_tokens, 'token')} in, {use.output_tokens:,} out"
    read = (use.input_tokens + use.output_tokens) / use.messages if use.messages else 0
    by_message = f", {read:,.0f} tokens for each message read" if read else ""
    return f"{counted(use.calls, 'call')}{failed}, {tokens}{by_message}{cost}"


def _result(job: JobStatus, *, has_workers: bool) -> str:
    """Return the error or the counts of a finished run; "running" until then, or "-" without workers."""
    if job.finished_at is None:
        return "running" if has_workers else "-"
    return job.error or _counts_text(job.counts)


def _counts_text(counts: Mapping[str, Any]) -> str:
    """Return the counts of a job that are not 0, without `looked_at`."""
    shown = {name: value for name, value in counts.items() if isinstance(value, int) and name != "looked_at"}
    return counts_text(shown) or "ok"


def _print_backlog(pipeline: PipelineStatus) -> None:
    rows: list[tuple[object, ...]] = [
        (f"inbox {inbox.workspace}", inbox.size, f"{inbox.oldest_age_seconds:.1f} s", "-", "-")
        for inbox in pipeline.inboxes
    ]
    rows += [
        (stage, state.waiting, f"{state.oldest_age_seconds:.1f} s", state.held, state.retrying)
        for stage, state in pipeline.stages.items()
        if state.waiting or state.retrying
    ]
    rows += [(f"queue {queue}", depth, "-", "-", "-") for queue, depth in pipeline.queues.items() if depth]
    print_table(("waiting", "count", "oldest", "claimed", "retrying"), rows, empty="Nothing is waiting.")


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value * 1_000:.0f} ms" if value < 10 else f"{value:.1f} s"


health = Group("health")


@contextmanager
def _monitor(command: Invocation) -> Iterator[Monitor]:
    """Connect to the broker. Not by a runtime, whose imports take a second: containers check their health all day."""
    from adapters.broker.monitor import Monitor
    from reverie.pipeline.broker import connect

    with closing(connect(command.settings.broker_url)) as broker:
        yield Monitor(broker, prefix=command.settings.broker_prefix)


@health.command("broker")
def broker(command: Invocation) -> None:
    """Check that the broker answers."""
    with _monitor(command) as monitor:
        monitor.queue_depths()
    say("ok")


@health.command("server")
def server(command: Invocation) -> None:
    """Check that the HTTP server answers and reaches the broker."""
    url = f"{command.target.url or local_url(command.settings.host, command.settings.port)}/healthz"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - our own address
            answer.read()
    except (urllib.error.URLError, OSError) as error:
        raise Unavailable(
            f"{url} is not healthy ({_reason(error)}): see `reverie status`, or start Reverie with `reverie up`"
        ) from error
    say("ok")


def _reason(error: OSError) -> object:
    return error.reason if isinstance(error, urllib.error.URLError) else error


@health.command("beat")
def beat(command: Invocation) -> None:
    """Check that beat, the scheduler of periodic jobs, runs on this host."""
    with _monitor(command) as monitor:
        workers = monitor.workers()
    if not any(worker.host == socket.gethostname() and worker.name.startswith("beat@") for worker in workers):
        raise Unavailable("no beat on this host has reported in the last 30 s")
    say("ok")


@health.command("worker")
def worker(
    command: Invocation,
    queues: Annotated[str, typer.Option(help="The queues of the worker on this host, separated by commas.")],
) -> None:
    """Check that a worker on this host takes tasks from these queues, or is busy with one.

    A worker that is busy with a long batch would not answer a ping.
    """
    from memory.pipeline.faults import find_worker_faults

    requested = {name.strip() for name in queues.split(",") if name.strip()}
    unknown = requested - set(contract.QUEUES)
    if unknown or not requested:
        raise Rejected(
            f"no such queue: {', '.join(sorted(unknown)) or '(none)'}; there are {', '.join(contract.QUEUES)}",
            field="queues",
        )
    with _monitor(command) as monitor:
        workers = monitor.workers()
    mine = [w for w in workers if w.host == socket.gethostname() and requested <= set(w.queues)]
    if not mine:
        raise Unavailable(f"no worker on this host takes tasks from {', '.join(sorted(requested))}")
    for fault in find_worker_faults(mine, {}):
        raise Unavailable(fault)
    say("ok")
