"""The senders and loops that schedules and reminders use in one process, made from the settings."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypedDict, Unpack

from adapters.broker.shared_metrics import WEBHOOKS
from adapters.kept_secrets import installation_key
from adapters.webhooks.addresses import WebhookPolicy, check_webhook_url, policy_of
from adapters.webhooks.sender import CountedWebhookSender, HttpWebhookSender, WebhookSender
from adapters.webhooks.signing import Signer, derived_secret
from beat_schedule import SCHEDULE_SECONDS
from memory.scheduling.due_runs import ToSend
from memory.scheduling.executing import AttemptLimits
from memory.scheduling.notifier import Destinations, Notifier
from memory.trust.webhook_secrets import AgentSecrets
from reverie import contract
from reverie.checks import check_workspace
from reverie.errors import ReverieError, Unavailable
from reverie.scheduling.agent_worker import AgentTasks
from reverie.scheduling.run_signing import derive_worker_key

if TYPE_CHECKING:
    from worker.runtime import Runtime


class ScheduleParts(TypedDict, total=False):
    """Parts that replace those ScheduleServices would make from the settings. The caller closes them."""

    webhooks: WebhookSender
    agent_tasks: AgentTasks
    notifier: Notifier | None


class ScheduleServices:
    """Webhooks, tasks for runs, the agents' workers and the due loops. Make one for each process; thread-safe."""

    def __init__(self, runtime: Runtime, **parts: Unpack[ScheduleParts]) -> None:
        self._runtime = runtime
        self._settings = runtime.settings
        self.destinations = Destinations()
        self.firing_loop = runtime.due_loop()
        self.delivery_loop = runtime.due_loop()
        # Whether a run of the loops waits for work that becomes due before the next run: only in processes where it has
        # its own thread and does not block other tasks.
        self.waits_for_due = False
        # If all 16 threads recall and write at once, they contend for the interpreter: a run costs 7.5 ms of CPU, but 5
        # ms with two at a time. Not just one: it may wait for the lock of a store that the others do not need.
        self.run_slots = threading.Semaphore(2)
        self._closing = contextlib.ExitStack()
        for name, part in parts.items():
            setattr(self, name, part)  # replaces the cached property

    @cached_property
    def policy(self) -> WebhookPolicy:
        """The rules for where webhooks may go, and how. Raises `Rejected` for an invalid setting."""
        settings = self._settings
        entries = [part.strip() for part in settings.webhook_allow_private.split(",")]
        return policy_of(
            private=[entry for entry in entries if entry],
            hosts=settings.webhook_hosts,
            allow_http=settings.webhook_allow_http,
        )

    @cached_property
    def secrets(self) -> list[str]:
        """The secrets that sign messages to the notifier: those of the settings, or the installation's own."""
        return self._shared_secrets or [derived_secret(self._installation_key, b"reverie.notifier-secret.v1")]

    @property
    def _shared_secrets(self) -> list[str]:
        """The secrets of the settings, which sign the webhooks of all agents, too."""
        return (self._settings.webhook_secret or "").split()

    def agent_secrets(self, workspace: str) -> AgentSecrets:
        """Return the secrets of the agents of a workspace. Raises `Rejected`, `StoreUnavailable`, `StoreUnusable`."""
        return AgentSecrets(self._runtime.stores, check_workspace(workspace))

    def webhook_signer(self, workspace: str, agent: str) -> Signer:
        """Return the signer of an agent's webhooks at this moment: its own secrets, and the secrets that all share."""
        own = self.agent_secrets(workspace).secrets(agent, datetime.now(UTC))
        return Signer([*own, *self._shared_secrets])

    @cached_property
    def webhooks(self) -> WebhookSender:
        """The sender of webhooks."""
        count = partial(self._runtime.shared_metrics.count, WEBHOOKS)
        return CountedWebhookSender(HttpWebhookSender(Signer(self.secrets), self.policy), count)

    @cached_property
    def agent_tasks(self) -> AgentTasks:
        """The sender of tasks to the agents' own workers."""
        settings = self._settings
        own = settings.agent_broker_url is None
        prefix = settings.agent_broker_prefix
        tasks = AgentTasks(
            settings.broker_url if settings.agent_broker_url is None else settings.agent_broker_url,
            prefix=(settings.broker_prefix if own else "") if prefix is None else prefix,
        )
        self._closing.callback(tasks.close)
        return tasks

    @cached_property
    def notifier(self) -> Notifier | None:
        """The notifier, or None if agents fetch reminders and notifications themselves."""
        url = self._settings.notifier_webhook_url
        if not url:
            return None
        return Notifier(url, self.webhooks, timeout_seconds=AttemptLimits().webhook)

    def worker_key(self, workspace: str, agent: str) -> str:
        """Return the key that signs the runs of an agent. Raises `StoreUnavailable` and `StoreUnusable`."""
        return derive_worker_key(self._installation_key, workspace, agent)

    @cached_property
    def _installation_key(self) -> bytes:
        if self._settings.database is not None:
            _ = self._runtime.stores  # this makes all hosts share the key
        return installation_key(self._settings.data)

    def has_waiting_tasks(self) -> bool:
        """Return whether tasks wait in the queue of schedules; False if the broker is unavailable."""
        try:
            return self._runtime.monitor.queue_depth(contract.QUEUE_SCHEDULES) > 0
        except Unavailable:
            return False

    @property
    def wait_seconds(self) -> float:
        """How long a run of the loops waits for work to become due."""
        return SCHEDULE_SECONDS if self.waits_for_due else 0.0

    def check_url(self, url: str) -> None:
        """Raise `Rejected` for a URL that webhooks may not go to. Resolves no name."""
        check_webhook_url(url, self.policy)

    def send(self, workspace: str, runs: Sequence[ToSend]) -> int:
        """Send a task for each run; returns how many the broker accepted. The sweep sends the others later."""
        sent = 0
        with contextlib.suppress(Unavailable):
            # Fails at once if there is no broker; Celery would retry for six seconds first.
            self._runtime.inbox.now_micros()
            for run in runs:
                self._runtime.task_sender.send(contract.RUN_SCHEDULE, workspace=workspace, trace=run.trace, run=run.run)
                sent += 1
        return sent

    def notify_goals(self, workspace: str) -> None:
        """Send the task that embeds the goals of a workspace, if there is an embedder. Broker errors are suppressed."""
        if self._settings.embedding_provider != "none":
            with contextlib.suppress(Unavailable):
                self._runtime.inbox.now_micros()
                self._runtime.task_sender.send(contract.EMBED_GOALS, workspace=workspace)

    def check(self) -> None:
        """Raise `Rejected` for invalid settings, when the process starts and not at the first run."""
        _ = self.policy
        if self._settings.webhook_secret:
            Signer(self.secrets)
        if self._settings.notifier_webhook_url is not None:
            check_webhook_url(self._settings.notifier_webhook_url, self.policy, field="notifier_webhook_url")

    def prepare(self) -> None:
        """Make everything now, before threads share it. Errors are suppressed here, and fail the runs that need it."""
        for make in (lambda: self.webhooks, lambda: self.agent_tasks, lambda: self.notifier):
            with contextlib.suppress(ReverieError):
                make()
        self._runtime.task_sender.prepare()

    def close(self) -> None:
        """Close what these services made."""
        self._closing.close()
