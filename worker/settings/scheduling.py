"""The settings of time: schedules, reminders, webhooks and who is told."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from pydantic_settings import BaseSettings

from memory.scheduling.rules import ScheduleRules


class SchedulingSettings(BaseSettings):
    """What an operator can set of schedules, of reminders, and of the webhooks that both go to."""

    title: ClassVar[str] = "Schedules and reminders"

    schedule_interval_seconds: float = Field(
        5.0, ge=0.2, le=60, description="How often it is looked for schedules and reminders that are due."
    )
    schedule_workers: int = Field(
        2, ge=1, le=16, description="Processes that carry out schedules, each 16 at once, as `reverie up` starts them."
    )
    schedule_min_interval_seconds: int = Field(60, ge=1, description="The shortest time between two firings.")
    schedules_per_user: int = Field(50, ge=1, description="Schedules of a user that fire, or can be made to.")
    schedule_runs_kept: int = Field(20, ge=1, description="Ended runs that are kept of each schedule.")
    schedule_alert_failures: int = Field(3, ge=1, description="Failures in a row after which somebody is told,")
    schedule_disable_failures: int = Field(5, ge=1, description="and after which the schedule is disabled.")
    schedule_llm_seconds: float = Field(
        120.0, gt=0, le=300, description="How long the language model may take over a goal."
    )
    webhook_secret: str | None = Field(
        None,
        description="Signs webhooks: `whsec_...`, several with blanks between while one takes another's place."
        " Without it, one is made and kept in the data folder: `reverie schedules secret`.",
    )
    webhook_timeout_seconds: float = Field(15.0, gt=0, le=120, description="How long a receiver may take to answer.")
    webhook_attempts: int = Field(
        4, ge=1, le=10, description="How often a webhook is tried in one run: again after 2 s, 8 s, 32 s."
    )
    webhook_allow_private: str = Field(
        "",
        description="Names, addresses and networks, with commas between, that webhooks may go to though they are not"
        " public: `127.0.0.1, 10.0.0.0/8, agent.internal`; `*` for all.",
    )
    notifier_webhook_url: str | None = Field(
        None, description="Where notifications and reminders are posted to; without it, they are pulled."
    )
    notification_days: float = Field(30.0, gt=0, description="How long notifications and delivered reminders are kept.")
    agent_broker_url: str | None = Field(
        None, description="The broker of your own Celery workers, for schedules with a task; else Reverie's own."
    )
    agent_broker_prefix: str | None = Field(
        None,
        description="The prefix of their keys (`global_keyprefix`); else Reverie's own, or none on another broker.",
    )

    @property
    def schedule_rules(self) -> ScheduleRules:
        """What schedules are held to."""
        return ScheduleRules(
            shortest_seconds=self.schedule_min_interval_seconds,
            a_user=self.schedules_per_user,
            runs_kept=self.schedule_runs_kept,
            alert_after=self.schedule_alert_failures,
            disable_after=self.schedule_disable_failures,
        )
