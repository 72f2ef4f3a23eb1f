"""Executes a run by a webhook, the agent's own workers or the language model, outside of any transaction."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from adapters.webhooks import (
    Signer,
    WebhookAnswer,
    WebhookFailed,
    WebhookRefused,
    WebhookSender,
    delivery_outcome,
    describe_answer,
)
from memory.scheduling.destinations import Busy, Destinations
from memory.scheduling.executing import Delegated, Execution, ExecutorBusy, Outcome, RetryAfter
from memory.scheduling.goal_answers import GoalAnswers, GoalContext
from memory.scheduling.rules import RunResult, to_result
from reverie.clock import from_micros, rfc3339
from reverie.decoding import convert
from reverie.errors import Rejected, Unavailable
from reverie.fields import check_fields
from reverie.problems import AgentQueueFull
from reverie.scheduling.agent_tasks import AgentTasks
from reverie.scheduling.run_signing import SignedRun, sign_run
from reverie.scheduling.schedule_types import RunReport, TaskExecutor, WebhookExecutor
from storage.scheduling.records import ScheduleRecord

# The event type by which receivers recognise a schedule's message.
EVENT: Final = "schedule.run"
# Between two attempts at a webhook: 2 s, 8 s, 32 s, and so on; an unavailable broker is tried again after 5 s.
_FIRST_WAIT_SECONDS: Final = 2.0
_WAIT_FACTOR: Final = 4
_MAX_WAIT_SECONDS: Final = 600.0
_BROKER_WAIT_SECONDS: Final = 5.0
_QUEUE_WAIT_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Executors:
    """Executes the runs of one workspace, each by the executor of its schedule.

    `recall` finds the context of a schedule's goal, within `slots`. The senders are callables because creating one
    may fail: then only the runs that need it fail.
    """

    workspace: str
    recall: Callable[[ScheduleRecord], GoalContext]
    goal_answers: GoalAnswers
    webhooks: Callable[[], WebhookSender]
    agent_tasks: Callable[[], AgentTasks]
    # Returns the key that signs the runs of an agent of this workspace; may raise `StoreUnavailable`.
    worker_key: Callable[[str], str]
    # Returns what signs the webhooks of an agent of this workspace; may raise `StoreUnavailable`.
    webhook_signer: Callable[[str], Signer]
    destinations: Destinations
    slots: AbstractContextManager[Any]
    webhook_attempts: int

    def __call__(self, execution: Execution) -> Outcome:
        """Execute a run; errors of a receiver or model are part of the outcome."""
        executor = execution.executor
        if isinstance(executor, TaskExecutor):
            return self._send_task(execution, executor)
        with self.slots:
            context = self.recall(execution.schedule)
        try:
            with self.destinations.calling(executor):
                if isinstance(executor, WebhookExecutor):
                    return self._post_webhook(execution, executor, context)
                return self.goal_answers.answer(execution, context)
        except Busy as busy:
            return ExecutorBusy(busy.wait_seconds)

    def _post_webhook(self, execution: Execution, executor: WebhookExecutor, context: GoalContext) -> Outcome:
        now = datetime.now(UTC)  # not the schedules' time: receivers refuse a signature whose time differs from theirs
        body = {"type": EVENT, "timestamp": now, "data": self._run_data(execution, context)}
        try:
            answer = self.webhooks().post(
                executor.url,
                message_id=execution.run.id,
                body=body,
                timeout_seconds=execution.seconds,
                now=now,
                signer=self.webhook_signer(execution.schedule.agent),
            )
        except WebhookRefused as error:
            return RunResult("failed", error=str(error))
        except WebhookFailed as error:
            return self._retry(execution, str(error)) if error.passing else RunResult("failed", error=str(error))
        result = delivery_outcome(answer)
        if result == "ok":
            return result_of(answer)
        if result == "retry":
            return self._retry(execution, describe_answer(answer), answer.retry_after_seconds)
        return RunResult("failed", error=describe_answer(answer), gone=result == "gone")

    def _retry(self, execution: Execution, error: str, retry_after_seconds: float | None = None) -> Outcome:
        tries = execution.run.tries
        if tries + 1 >= self.webhook_attempts:
            return RunResult("failed", error=f"{error} ({tries + 1} attempts)" if tries else error)
        wait = _FIRST_WAIT_SECONDS * _WAIT_FACTOR**tries
        return RetryAfter(error, min(max(wait, retry_after_seconds or 0.0), _MAX_WAIT_SECONDS))

    def _send_task(self, execution: Execution, executor: TaskExecutor) -> Outcome:
        schedule, run = execution.schedule, execution.run
        signed = SignedRun(
            workspace=self.workspace,
            agent=schedule.agent,
            task=executor.task,
            schedule_id=schedule.id,
            run_id=run.id,
            goal=schedule.goal,
            due_at=rfc3339(run.due_at),
            timeout_seconds=schedule.timeout_seconds,
            trace=run.trace,
            user=schedule.user,
            session=schedule.session,
            signed_at=int(time.time()),  # not the schedules' time: workers compare it with their own clock
        )
        headers = {
            "agent": signed.agent,
            "workspace": signed.workspace,
            "due_at": signed.due_at,
            "timeout_seconds": signed.timeout_seconds,
            "trace": signed.trace,
            "user": signed.user,
            "session": signed.session,
            "signed_at": signed.signed_at,
            "signature": sign_run(self.worker_key(schedule.agent), signed),
        }
        try:
            self.agent_tasks().send(
                executor,
                workspace=self.workspace,
                schedule_id=schedule.id,
                run_id=run.id,
                goal=schedule.goal,
                headers=headers,
                expires_at=None if run.deadline is None else from_micros(run.deadline),
            )
        except AgentQueueFull as error:
            return RetryAfter(str(error), _QUEUE_WAIT_SECONDS)
        except Unavailable as error:
            return RetryAfter(str(error), _BROKER_WAIT_SECONDS)
        except Rejected as error:  # stored by a release that allowed more names
            return RunResult(
                "failed",
                error=f"{error}. Rename the queue with `reverie schedules update {schedule.id} --task {executor.task}"
                " --queue NAME` and AgentWorker(queue=NAME)",
            )
        return Delegated()

    def _run_data(self, execution: Execution, context: GoalContext) -> dict[str, Any]:
        """Return the data about a run for the body of a webhook."""
        schedule, run = execution.schedule, execution.run
        return {
            "schedule_id": schedule.id,
            "run_id": run.id,
            "goal": schedule.goal,
            "context": context.text,
            "results": context.results,
            "degraded": context.degraded,
            "due_at": from_micros(run.due_at),
            "coalesced": run.coalesced,
            "trigger": run.trigger,
            "attempt": run.attempt,
            "name": schedule.name,
            "agent": schedule.agent,
            "user": schedule.user,
            "workspace": self.workspace,
            "session": schedule.session,
            "channel": schedule.channel,
        }


def result_of(answer: WebhookAnswer) -> RunResult:
    """Return the result that a receiver's successful answer describes: a report as JSON, a text, or nothing.

    JSON that is not a report fails the run: the receiver meant to report something that cannot be read.
    """
    kind = (answer.content_type or "").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        return RunResult("success", output=answer.body.decode("utf-8", "replace"))
    if not answer.body.strip():
        return RunResult("success")
    try:
        report = check_fields(convert(msgspec.json.decode(answer.body), RunReport, name="report"))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, Rejected) as error:
        return RunResult("failed", error=f"the receiver answered with JSON that is not a report of a run: {error}")
    return to_result(report)
