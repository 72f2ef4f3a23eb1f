"""Who executes a run: a webhook, the agent's own workers, or the language model. None within a transaction."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from adapters.webhooks import WebhookAnswer, WebhookFailed, WebhookRefused, reason, verdict
from memory.scheduling.destinations import Busy
from memory.scheduling.executing import AttemptLimits, Execution, HandedOver, NotTried, Outcome, TryAgain
from memory.scheduling.goal_answers import answer_of
from memory.scheduling.rules import RunResult, reported
from reverie.clock import from_micros, rfc3339
from reverie.errors import Rejected, Unavailable
from reverie.scheduling.checks import check_report
from reverie.scheduling.schedule_types import RunReport, TaskExecutor, WebhookExecutor
from worker.runtime import Runtime
from worker.scheduling.goal_context import GoalContext, recalled_for
from worker.settings import Settings

# What receivers and workers tell a schedule's message by.
EVENT: Final = "schedule.run"
# Between two attempts at a webhook: 2 s, 8 s, 32 s, and so on; a broker that is away is asked again after 5 s.
_FIRST_WAIT_SECONDS: Final = 2.0
_WAIT_FACTOR: Final = 4
_LONGEST_WAIT_SECONDS: Final = 600.0
_BROKER_WAIT_SECONDS: Final = 5.0


def limits_of(settings: Settings) -> AttemptLimits:
    """How long one attempt may take, as the settings say."""
    return AttemptLimits(webhook=settings.webhook_timeout_seconds, llm=settings.schedule_llm_seconds)


class Executors:
    """Executes the runs of one workspace, each by the executor that its schedule names."""

    def __init__(self, here: Runtime, workspace: str) -> None:
        self._here = here
        self._workspace = workspace

    def __call__(self, execution: Execution) -> Outcome:
        """Execute a run; whatever goes wrong outside is part of what is returned."""
        executor = execution.executor
        if isinstance(executor, TaskExecutor):
            return self._task(execution, executor)
        with self._here.schedules.turns:
            context = recalled_for(self._here, self._workspace, execution.schedule)
        try:
            with self._here.schedules.destinations.calling(executor):
                if isinstance(executor, WebhookExecutor):
                    return self._webhook(execution, executor, context)
                return answer_of(self._here, execution, context)
        except Busy as busy:
            return NotTried(busy.wait_seconds)

    def _webhook(self, execution: Execution, executor: WebhookExecutor, context: GoalContext) -> Outcome:
        at = datetime.now(UTC)  # receivers refuse what is signed at another time than theirs
        body = {"type": EVENT, "timestamp": at, "data": self._told(execution, context)}
        try:
            answer = self._here.schedules.webhooks.post(
                executor.url, message_id=execution.run.id, body=body, timeout_seconds=execution.seconds, now=at
            )
        except WebhookRefused as error:
            return RunResult("failed", error=str(error))
        except WebhookFailed as error:
            return self._again(execution, str(error)) if error.passing else RunResult("failed", error=str(error))
        said = verdict(answer)
        if said == "ok":
            return result_of(answer)
        if said == "again":
            return self._again(execution, reason(answer), answer.retry_after_seconds)
        return RunResult("failed", error=reason(answer), gone=said == "gone")

    def _again(self, execution: Execution, error: str, retry_after_seconds: float | None = None) -> Outcome:
        tries = execution.run.tries
        if tries + 1 >= self._here.settings.webhook_attempts:
            return RunResult("failed", error=f"{error} ({tries + 1} attempts)" if tries else error)
        wait = _FIRST_WAIT_SECONDS * _WAIT_FACTOR**tries
        return TryAgain(error, min(max(wait, retry_after_seconds or 0.0), _LONGEST_WAIT_SECONDS))

    def _task(self, execution: Execution, executor: TaskExecutor) -> Outcome:
        schedule, run = execution.schedule, execution.run
        more = {
            "agent": schedule.agent,
            "workspace": self._workspace,
            "due_at": rfc3339(run.due_at),
            "timeout_seconds": schedule.timeout_seconds,
            "trace": run.trace,
        }
        try:
            self._here.schedules.agent_tasks.send(
                executor.task,
                executor.queue,
                schedule_id=schedule.id,
                run_id=run.id,
                goal=schedule.goal,
                more=more,
                expires_at=None if run.deadline is None else from_micros(run.deadline),
            )
        except Unavailable as error:
            return TryAgain(str(error), _BROKER_WAIT_SECONDS)
        return HandedOver()

    def _told(self, execution: Execution, context: GoalContext) -> dict[str, Any]:
        """What a receiver is told of a run."""
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
            "workspace": self._workspace,
            "session": schedule.session,
            "channel": schedule.channel,
        }


def result_of(answer: WebhookAnswer) -> RunResult:
    """What a receiver that took a run says of it: a report as JSON, a text, or nothing.

    JSON that is no report has failed the run: whoever wrote it meant something by it.
    """
    kind = (answer.content_type or "").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        return RunResult("success", output=answer.body.decode("utf-8", "replace"))
    if not answer.body.strip():
        return RunResult("success")
    try:
        report = check_report(msgspec.json.decode(answer.body, type=RunReport))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, Rejected) as error:
        return RunResult("failed", error=f"the receiver answered with JSON that is no report of a run: {error}")
    return reported(report)
