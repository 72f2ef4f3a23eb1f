"""Executes runs of schedules with the real executors, a scripted webhook sender and a scripted language model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from adapters.language_models import GuardedLanguageModel
from memory.scheduling.executing import Execution, Executors, Outcome
from reverie.errors import Unavailable
from reverie.scheduling.types import Executor, TaskExecutor
from storage.scheduling.records import RunRecord
from support.pipeline import Pipeline
from support.scheduled import Scheduled
from support.scripted import Scripted, ScriptedLanguageModel, ScriptedWebhookSender
from worker.runtime import Runtime
from worker.scheduling.jobs import executors
from worker.settings import Settings

WORKSPACE = "ws"


class FakeBroker:
    """A fake broker that records the tasks sent, and those whose notification flag was cleared."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.cleared: list[tuple[str, str]] = []
        self.away = False

    def now_micros(self) -> int:
        if self.away:
            raise Unavailable("the broker is away")
        return 0

    def send(self, task: str, *, workspace: str, trace: str = "", **ids: str) -> None:
        self.now_micros()
        self.sent.append((task, {"workspace": workspace, **ids}))

    def clear_notification(self, task: str, workspace: str) -> None:
        self.cleared.append((task, workspace))


class AgentQueue:
    """A fake of the agents' broker that records the tasks sent."""

    def __init__(self, error: Unavailable | None = None) -> None:
        self.sent: list[tuple[str, str, dict[str, Any]]] = []
        self.error = error

    def send(self, executor: TaskExecutor, **fields: Any) -> None:
        if self.error is not None:
            raise self.error
        self.sent.append((executor.task, executor.queue, fields))

    def close(self) -> None:
        pass


class CarryingOut:
    """A workspace with messages and schedules, and executors whose webhooks and models are scripted."""

    def __init__(self, data: Path, **settings: Any) -> None:
        self.pipeline = Pipeline(data)
        self.time = Scheduled(data)
        given = {"data": data, "broker": "redis://127.0.0.1:1/0", "embedding_provider": "hash", **settings}
        self.settings = Settings(**given)
        self.broker = FakeBroker()
        self._parts: dict[str, Any] = {"task_sender": self.broker, "inbox": self.broker, "stores": self.pipeline.stores}
        self.here = Runtime(self.settings, **self._parts)

    def work_with(self, **parts: Any) -> None:
        """Replace parts of the runtime for all later runs."""
        self.here.close()
        self._parts.update(parts)
        self.here = Runtime(self.settings, **self._parts)

    def close(self) -> None:
        self.here.close()
        self.time.close()
        self.pipeline.close()

    def _work_with_sender(self, **parts: Any) -> None:
        self.work_with(schedule_parts=self._parts.get("schedule_parts", {}) | parts)

    def answer_webhooks(self, *answers: Scripted) -> ScriptedWebhookSender:
        """Set the answers of webhook receivers, in order; return the sender."""
        sender = ScriptedWebhookSender(answers)
        self._work_with_sender(webhooks=sender)
        return sender

    def answer_goals(self, *answers: str | Exception) -> ScriptedLanguageModel:
        """Set the answers of the language model, in order; return the model."""
        model = ScriptedLanguageModel(answers)
        self.work_with(schedule_model=self.guarded(model))
        return model

    def guarded(self, model: ScriptedLanguageModel) -> GuardedLanguageModel:
        """Return the model behind a circuit breaker whose pauses end at once."""
        moments = iter(range(0, 10_000_000, 1_000))
        return GuardedLanguageModel(model, clock=lambda: float(next(moments)))

    def queue_tasks(self, error: Unavailable | None = None) -> AgentQueue:
        """Have tasks for the agents' own workers recorded; return the queue. With an error, sending raises it."""
        queue = AgentQueue(error)
        self._work_with_sender(agent_tasks=queue)
        return queue

    def executing(self) -> Executors:
        """Return what executes a run."""
        return executors(self.here, WORKSPACE)

    def outcome(self, schedule: str, executor: Executor, run: RunRecord, *, agent: str = "ana") -> Outcome:
        """Return the outcome of one attempt at a run, without saving it."""
        seconds = self.time.limits.seconds_for(executor)
        return self.executing()(Execution(self.time.schedule(schedule, agent=agent), run, executor, seconds))

    def fire(self, schedule: str, *, agent: str = "ana") -> RunRecord:
        """Make a schedule fire, execute its run once, and return it."""
        return self.time.fire(schedule, self.executing(), agent=agent)

    def again(self, run: RunRecord, *, after_seconds: float) -> RunRecord:
        """Advance the clock so that the sweep sends a run again, and execute it."""
        self.time.advance(after_seconds)
        assert [one.run for one in self.time.take_up()] == [run.id]
        self.time.execute(run.id, self.executing())
        return self.time.run(run.id, agent=run.agent)

    def waits(self, run: RunRecord, *, seconds: float) -> bool:
        """Return whether a run has not yet been sent again after this time."""
        self.time.advance(seconds)
        sent = self.time.take_up()
        self.time.advance(-seconds)
        return run.id not in [one.run for one in sent]
