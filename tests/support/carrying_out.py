"""Runs of schedules carried out by the real executors, with a webhook sender and a language model that are scripted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from adapters.language_models import GuardedLanguageModel
from adapters.language_models.scripted import ScriptedLanguageModel
from adapters.webhooks.in_memory import Scripted, ScriptedWebhookSender
from memory.scheduling.executing import Execution, Outcome
from memory.scheduling.executors import Executors
from reverie.errors import Unavailable
from reverie.scheduling.schedule_types import Executor, TaskExecutor
from storage.scheduling.records import RunRecord
from support.pipeline import Pipeline
from support.scheduled import Scheduled
from worker.runtime import Runtime
from worker.scheduling.jobs import attempt_limits, executors
from worker.settings import Settings

WORKSPACE = "ws"


class FakeBroker:
    """Stands in for the broker: notes which tasks would have been sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.away = False

    def now_micros(self) -> int:
        if self.away:
            raise Unavailable("the broker is away")
        return 0

    def send(self, task: str, *, workspace: str, trace: str = "", **ids: str) -> None:
        self.now_micros()
        self.sent.append((task, {"workspace": workspace, **ids}))


class AgentQueue:
    """Stands in for the agents' broker: notes what was sent."""

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
    """A workspace with what was said in it, schedules, and executors whose other ends are scripted."""

    def __init__(self, data: Path, **settings: Any) -> None:
        self.said = Pipeline(data)
        self.time = Scheduled(data)
        given = {"data": data, "broker": "redis://127.0.0.1:1/0", "embedding_provider": "hash", **settings}
        self.settings = Settings(**given)
        self.broker = FakeBroker()
        self._parts: dict[str, Any] = {"task_sender": self.broker, "inbox": self.broker, "stores": self.said.stores}
        self.here = Runtime(self.settings, **self._parts)
        self.time.limits = attempt_limits(self.settings)

    def work_with(self, **parts: Any) -> None:
        """Have runs carried out with other parts of the runtime from now on."""
        self.here.close()
        self._parts.update(parts)
        self.here = Runtime(self.settings, **self._parts)

    def close(self) -> None:
        self.here.close()
        self.time.close()
        self.said.close()

    def _work_with_sender(self, **parts: Any) -> None:
        self.work_with(schedule_parts=self._parts.get("schedule_parts", {}) | parts)

    def answer_webhooks(self, *answers: Scripted) -> ScriptedWebhookSender:
        """What receivers answer, in turn."""
        sender = ScriptedWebhookSender(answers)
        self._work_with_sender(webhooks=sender)
        return sender

    def answer_goals(self, *answers: str | Exception) -> ScriptedLanguageModel:
        """What the language model answers, in turn."""
        model = ScriptedLanguageModel(answers)
        self.work_with(schedule_model=self.guarded(model))
        return model

    def guarded(self, model: ScriptedLanguageModel) -> GuardedLanguageModel:
        """A model behind a breaker whose pauses are over at once."""
        moments = iter(range(0, 10_000_000, 1_000))
        return GuardedLanguageModel(model, clock=lambda: float(next(moments)))

    def queue_tasks(self, error: Unavailable | None = None) -> AgentQueue:
        """Where tasks for the agents' own workers go."""
        queue = AgentQueue(error)
        self._work_with_sender(agent_tasks=queue)
        return queue

    def executing(self) -> Executors:
        """What carries out a run."""
        return executors(self.here, WORKSPACE)

    def outcome(self, schedule: str, executor: Executor, run: RunRecord, *, agent: str = "ana") -> Outcome:
        """What one attempt at a run comes to, without keeping it."""
        seconds = self.time.limits.seconds_for(executor)
        return self.executing()(Execution(self.time.schedule(schedule, agent=agent), run, executor, seconds))

    def fire(self, schedule: str, *, agent: str = "ana") -> RunRecord:
        """Have a schedule fire and its run carried out, once."""
        return self.time.fire(schedule, self.executing(), agent=agent)

    def again(self, run: RunRecord, *, after_seconds: float) -> RunRecord:
        """Have the sweep send a run again after a pause, and carry it out."""
        self.time.advance(after_seconds)
        assert [one.run for one in self.time.take_up()] == [run.id]
        self.time.execute(run.id, self.executing())
        return self.time.run(run.id, agent=run.agent)

    def waits(self, run: RunRecord, *, seconds: float) -> bool:
        """Whether a run is not sent again before so many seconds have passed."""
        self.time.advance(seconds)
        sent = self.time.take_up()
        self.time.advance(-seconds)
        return run.id not in [one.run for one in sent]
