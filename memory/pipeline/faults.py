"""Finds the faults that keep accepted messages from being processed, for every check, page, metric and alert alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from reverie import contract
from reverie.counts import counted
from reverie.pipeline.status import PipelineStatus, StageStatus, TaskDeath, WorkerStatus
from storage.memories.extraction import EXTRACT_STAGE

# A worker looks into its queues every two seconds. If the broker goes away, the worker may not look for some 15 s.
STALLED_SECONDS: Final = 20.0
# Inboxes are emptied about every second, and the sweeps for leftovers run every 15 s.
STUCK_SECONDS: Final = 60.0
_SWEEPS: Final = (contract.SWEEP_STAGES, contract.RECOVER_INBOX)
# What a process had in hand when it died is tried again after its lease, with some 40 s between two tries.
_DEATH_SECONDS: Final = 120.0
_SHOWN: Final = 5
# The queues of the stages whose tasks are not in the one of `index`.
_QUEUES: Final = {
    "embed": contract.QUEUE_EMBED,
    "items": contract.QUEUE_EMBED,
    EXTRACT_STAGE: contract.QUEUE_EXTRACTION,
}
# A step of extraction may be a call of a model with one format and, if it ignores that, another.
_CALLS_OF_STEP: Final = 2
# The state of a worker's embedder, beside "up" and "down", while it is up but may not embed the waiting chunks.
BLOCKED: Final = "blocked"
_NOT_EMBEDDING: Final = (": down (", f": {BLOCKED} (")


def find_worker_faults(
    workers: Sequence[WorkerStatus], queues: Mapping[str, int], *, starting: bool = False
) -> Iterator[str]:
    """Yield the faults of workers and queues; `queues` has the depth of each queue.

    While the stack is `starting`, workers may not have reported yet: a queue without one is a fault if it has tasks.
    """
    for worker in workers:
        if worker.stalled_seconds >= STALLED_SECONDS:
            yield (
                f"the worker {worker.name} (pid {worker.pid} on {worker.host}) has taken no task for"
                f" {worker.stalled_seconds:.0f} s although it could: it ends itself after {2 * STALLED_SECONDS:.0f} s,"
                " and `reverie up` starts it again"
            )
    served = {queue for worker in workers for queue in worker.queues}
    unserved = {queue: depth for queue, depth in queues.items() if queue not in served}
    if unserved and not (starting and not any(unserved.values())):
        names, tasks = ",".join(unserved), counted(sum(unserved.values()), "task")
        yield (
            f"no worker takes tasks from {names} ({tasks} waiting): start `reverie up`,"
            f" or `reverie worker --queues {names}`"
        )


def recent_deaths(worker: WorkerStatus, now: datetime) -> list[TaskDeath]:
    """Return the deaths in a worker's pool after which what was in hand may not have been tried again yet."""
    return [death for death in worker.deaths if abs((now - death.at).total_seconds()) < _DEATH_SECONDS]


def _is_second(deaths: Sequence[TaskDeath], now: datetime) -> bool:
    """Return whether a second process has just died. A single death may be an operator's, and delays little."""
    return len(deaths) > 1 and (now - deaths[-1].at).total_seconds() < STUCK_SECONDS


def death_text(worker: WorkerStatus, now: datetime) -> str:
    """Return when a process of a worker died last, and what becomes of what it had in hand."""
    death, deaths = worker.deaths[-1], counted(len(recent_deaths(worker, now)), "death")
    return (
        f"a process of the worker {worker.name} died {(now - death.at).total_seconds():.0f} s ago in"
        f" {contract.job_name(death.task)} ({deaths} lately): what it had in hand is tried again in small groups, then"
        " alone, and is set aside after three deaths"
    )


def find_faults(status: PipelineStatus, *, call_seconds: float = 0.0, starting: bool = False) -> list[str]:
    """Return all that is wrong with the work on accepted messages; nothing while the broker is away.

    A call of the language model may take `call_seconds`. While all is `starting`, workers may not have reported yet.
    """
    if status.broker == "down":
        return []
    workers, jobs, stages, now = status.workers, status.jobs, status.stages, status.at
    faults = list(find_worker_faults(workers, status.queues, starting=starting))
    faults += [
        f"two workers have the name {worker.name}: pid {worker.pid} on {worker.host}, and {worker.shares_name_with}."
        " Their tasks are counted together: start one of them under another name (`-n NAME@%h`)"
        for worker in workers
        if worker.shares_name_with
    ]
    late = [name for name, state in stages.items() if state.waiting and state.oldest_age_seconds > STUCK_SECONDS]
    queues_late = {_QUEUES.get(name, contract.QUEUE_INDEX) for name in late}
    faults += [
        death_text(worker, now)
        for worker in workers
        if (deaths := recent_deaths(worker, now)) and (_is_second(deaths, now) or queues_late & {*worker.queues})
    ]
    beats = [worker for worker in workers if worker.name.startswith("beat@")]
    if not beats and not starting:
        faults.append("beat does not run, so no periodic job is started: start `reverie up`, or `reverie beat`")
    for name in _SWEEPS if beats else ():
        # A beat that has just started has not sent the job yet.
        since = max([beat.started_at for beat in beats] + ([jobs[name].started_at] if name in jobs else []))
        late_seconds = (now - since).total_seconds()
        if late_seconds > STUCK_SECONDS:
            short = contract.job_name(name)
            faults.append(
                f"the job {short} has not run for {late_seconds:.0f} s: see the log of the worker for `index`"
            )
    old = [inbox for inbox in status.inboxes if inbox.oldest_age_seconds > STUCK_SECONDS]
    faults += [
        f"{counted(inbox.size, 'item')} of the workspace {inbox.workspace} wait to be stored, the oldest for"
        f" {inbox.oldest_age_seconds:.0f} s: see the log of the worker for `ingest`"
        for inbox in old[:_SHOWN]
    ]
    for name in late:
        may_take = max(STUCK_SECONDS, _CALLS_OF_STEP * call_seconds) if name == EXTRACT_STAGE else STUCK_SECONDS
        faults += _stage_faults(name, stages[name], workers, now, may_take)
    return faults


def _stage_faults(
    name: str, state: StageStatus, workers: Sequence[WorkerStatus], now: datetime, may_take_seconds: float
) -> Iterator[str]:
    """Yield the reasons why old rows of a stage make no progress. A long queue that moves is no fault.

    A step of the stage may take `may_take_seconds`.
    """
    queue = _QUEUES.get(name, contract.QUEUE_INDEX)
    if state.retrying:
        yield (
            f"{counted(state.retrying, 'row')} failed at the stage {name} and will be tried again; the oldest that"
            f" waits there was stored {state.oldest_age_seconds:.0f} s ago: see the log of the worker for `{queue}`"
        )
        return
    if state.suspects:
        yield (
            f"{counted(state.suspects, 'row')} of the stage {name} were in hand when a worker died, and are tried in"
            f" small groups, then alone; the oldest that waits there was stored {state.oldest_age_seconds:.0f} s ago:"
            f" see the log of the worker for `{queue}`"
        )
        return
    # Its tasks end at once, so that it seems to get on.
    idle = [worker.embedder for worker in workers if any(words in worker.embedder for words in _NOT_EMBEDDING)]
    if idle and queue == contract.QUEUE_EMBED:
        yield (
            f"{counted(state.waiting, 'row')} wait at the stage {name}, the oldest for"
            f" {state.oldest_age_seconds:.0f} s: {idle[0]}"
        )
        return
    serving = [worker.progress_at or worker.started_at for worker in workers if queue in worker.queues]
    still_seconds = (now - max([*serving, state.moved_at or serving[0]])).total_seconds() if serving else 0.0
    if still_seconds > may_take_seconds:
        yield (
            f"{counted(state.waiting, 'row')} wait at the stage {name}, the oldest for"
            f" {state.oldest_age_seconds:.0f} s, and no worker for `{queue}` has got on for {still_seconds:.0f} s:"
            " see its log"
        )
