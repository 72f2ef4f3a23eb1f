"""Settings of schedules, reminders, webhooks and notifications."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field
from pydantic_settings import BaseSettings

if TYPE_CHECKING:
    from memory.scheduling.rules import ScheduleRules
    from reverie.scheduling.agent_tasks import QueueLimits


class SchedulingSettings(BaseSettings):
    """How schedules fire and run, and how reminders and notifications are delivered."""

    title: ClassVar[str] = "Schedules and reminders"

    schedule_interval_seconds: float = Field(
        5.0, ge=0.2, le=60, description="Seconds between checks for due schedules and reminders."
    )
    schedule_workers: int = Field(
        2,
        ge=1,
        le=16,
        description="Number of processes that `reverie up` starts to execute schedules. Each executes 16 runs at once.",
    )
    schedule_min_interval_seconds: int = Field(
        60, ge=1, description="Minimum number of seconds between two firings of a schedule."
    )
    schedules_per_user: int = Field(
        50, ge=1, description="Maximum number of schedules of a user. Completed and failed ones do not count."
    )
    schedule_runs_kept: int = Field(20, ge=1, description="Number of ended runs that are kept of each schedule.")
    schedule_alert_failures: int = Field(
        3, ge=1, description="Number of failures in a row after which a notification is created."
    )
    schedule_disable_failures: int = Field(
        5, ge=1, description="Number of failures in a row after which a schedule is disabled."
    )
    schedule_llm_seconds: float = Field(
        120.0, gt=0, le=300, description="Maximum seconds for the language model to answer the goal of a schedule."
    )
    webhook_secret: str | None = Field(
        None,
        description="Secret that signs the webhooks of all agents besides their own, and messages to the notifier:"
        " `whsec_...`, or several separated by spaces while one replaces another. Default: none. `reverie schedules"
        " secret` prints those of an agent.",
    )
    webhook_timeout_seconds: float = Field(
        15.0, gt=0, le=120, description="Maximum seconds for a receiver to answer a webhook."
    )
    webhook_attempts: int = Field(
        4, ge=1, le=10, description="Maximum number of attempts at a webhook in one run, with pauses of 2 s, 8 s, 32 s."
    )
    webhook_hosts: str = Field(
        "*",
        description="Hosts that webhooks may go to, separated by commas: names, addresses, and patterns such as"
        " `*.example.org`; `*` for all. Hosts named in `webhook_allow_private` need not be repeated.",
    )
    webhook_allow_http: bool = Field(
        False,
        description="Whether webhooks may go to `http://` URLs. Without it only those of this machine may:"
        " `http://127.0.0.1`, `http://localhost`.",
    )
    webhook_allow_private: str = Field(
        "",
        description="Host names, addresses and networks that webhooks may go to although they are not public, separated"
        " by commas: `127.0.0.1, 10.0.0.0/8, agent.internal`; `*` for all but the metadata services of clouds.",
    )
    notifier_webhook_url: str | None = Field(
        None,
        description="URL to which due reminders and notifications are posted. Without it, agents have to ask for them.",
    )
    notification_days: float = Field(
        30.0, gt=0, description="Days for which notifications and delivered reminders are kept."
    )
    agent_broker_url: str | None = Field(
        None,
        description="Broker of your agents' own Celery workers, for schedules whose executor is a task. Default:"
        " Reverie's own broker.",
    )
    agent_broker_prefix: str | None = Field(
        None,
        description="Key prefix of those workers (`global_keyprefix`). Default: Reverie's own on its own broker,"
        " none on a different one.",
    )
    agent_queue_tasks: int = Field(
        1_000,
        ge=1,
        description="Maximum number of tasks that wait in one queue of those workers. Further runs wait, and time out"
        " with the reason if the workers do not come; what waits is kept.",
    )
    agent_queue_mb: float = Field(
        16.0, gt=0, description="Maximum size of the tasks that wait in one of those queues, in MB (10^6 bytes)."
    )

    @property
    def agent_queue_limits(self) -> QueueLimits:
        """How much may wait in one queue of the agents' own workers."""
        from reverie.scheduling.agent_tasks import QueueLimits  # here: it imports the broker's client, which takes long

        return QueueLimits(tasks=self.agent_queue_tasks, bytes=int(self.agent_queue_mb * 1e6))

    @property
    def schedule_rules(self) -> ScheduleRules:
        """The limits of schedules and their reaction to failures."""
        from memory.scheduling.rules import ScheduleRules  # here: it imports the storage layer, which takes 0.4 s

        return ScheduleRules(
            min_interval_seconds=self.schedule_min_interval_seconds,
            max_per_user=self.schedules_per_user,
            runs_kept=self.schedule_runs_kept,
            alert_after_failures=self.schedule_alert_failures,
            disable_after_failures=self.schedule_disable_failures,
        )
