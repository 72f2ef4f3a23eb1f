"""Settings of the jobs that curate memories and maintain the databases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field
from pydantic_settings import BaseSettings

from memory.upkeep.relevance import CurationPolicy
from storage.memories.decay import RATES
from storage.memories.records import TIERS, Tier

if TYPE_CHECKING:
    from memory.upkeep.dreaming import DreamRules
    from memory.upkeep.expiry import KeepRules


class UpkeepSettings(BaseSettings):
    """How memories fade, are promoted, merged and removed."""

    title: ClassVar[str] = "Upkeep"

    decay_profile: Literal["standard", "fast"] = Field(
        "standard",
        description="Set of hourly decay rates, one for each tier. A memory's relevance is its importance, multiplied"
        " by the rate for each hour since its last recall; `fast` uses lower rates.",
    )
    decay_rate_account: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Decay rate of the account tier: share of a relevance that remains after one hour. Default: that of"
        " `decay_profile`.",
    )
    decay_rate_workspace: float | None = Field(
        None, gt=0, le=1, description="Decay rate of the workspace tier. Default: that of `decay_profile`."
    )
    decay_rate_channel: float | None = Field(
        None, gt=0, le=1, description="Decay rate of the channel tier. Default: that of `decay_profile`."
    )
    decay_rate_conversation: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Decay rate of the conversation tier, used for ranking only: these memories are not pruned."
        " Default: that of `decay_profile`.",
    )
    consolidation_interval_hours: float = Field(
        6.0,
        gt=0,
        description="Hours between consolidations, which promote, prune and merge memories and summarise sessions that"
        " are over.",
    )
    promote_relevance: float = Field(
        0.7, ge=0, description="Relevance above which a short-term memory may be promoted to long-term."
    )
    promote_access_count: int = Field(
        3, ge=0, description="Number of recalls above which a short-term memory may be promoted to long-term."
    )
    prune_relevance: float = Field(0.01, ge=0, description="Relevance below which a memory is pruned.")
    duplicate_similarity: float = Field(
        0.95,
        gt=0.5,
        le=1,
        description="Cosine similarity above which two memories of one scope are merged, unless their texts differ in"
        " a number, a name or a negation.",
    )
    memories_per_scope: int = Field(
        10_000, ge=1, description="Maximum number of memories of an agent in each tier; the least relevant are removed."
    )
    max_entries: int | None = Field(
        None,
        ge=1,
        description="Maximum number of memories of an agent in all tiers together; the least relevant are removed."
        " Default: no limit.",
    )
    auto_gc: bool = Field(
        True, description="Prune expired and decayed memories after every start, not only every `prune_interval_hours`."
    )
    prune_interval_hours: float = Field(1.0, gt=0, description="Hours between prunings of memories.")
    dream_enabled: bool = Field(True, description="Run dream sweeps, which promote what is recalled often.")
    dream_interval_hours: float = Field(24.0, gt=0, description="Hours between dream sweeps.")
    dream_lookback_days: float = Field(30.0, gt=0, description="Age in days of the oldest recalls that a sweep counts.")
    dream_min_hits: int = Field(3, ge=1, description="Minimum number of recalls of what a sweep promotes.")
    dream_min_queries: int = Field(2, ge=1, description="Minimum number of different queries that recalled it.")
    dream_min_score: float = Field(
        0.35,
        ge=0,
        le=1,
        description="Minimum score of what a sweep promotes, computed from frequency, relevance, recency, diversity of"
        " queries and spread over days.",
    )
    dream_shared_min_users: int = Field(
        2,
        ge=1,
        description="Minimum number of users, besides its author, who recalled what a job promotes and several users"
        " see. Only where the agent has users.",
    )
    dream_shared_min_days: int = Field(
        2, ge=1, description="Minimum number of days on which such users recalled what several users see."
    )
    dream_most_promotions: int = Field(
        20, ge=1, description="Maximum number of promotions for each agent in one sweep; the highest scores come first."
    )
    audit_log_days: float = Field(365.0, gt=0, description="Days for which entries of the audit log are kept.")
    curation_log_days: float = Field(
        90.0, gt=0, description="Days for which changes made by jobs are logged and can be undone."
    )
    dead_letter_days: float = Field(
        365.0, gt=0, description="Days for which dead letters are kept. Those of rows that are gone are removed daily."
    )
    dead_letters_kept: int = Field(
        10_000, ge=1, description="Maximum number of dead letters of a workspace; the oldest are removed."
    )
    ended_schedule_days: float = Field(
        90.0, gt=0, description="Days for which one-shot schedules that have ended are kept, with their runs."
    )
    unclaimed_reminder_days: float = Field(
        365.0, gt=0, description="Days after its time for which a reminder waits to be fetched or delivered."
    )
    receipt_days: float = Field(1_825.0, gt=0, description="Days for which receipts of erasures are kept.")
    host_days: float = Field(
        30.0,
        gt=0,
        description="With PostgreSQL: days for which erasures wait for a host that is away. When it comes back later,"
        " it removes old versions of its memory files, and its logs.",
    )
    usage_days: float = Field(800.0, gt=0, description="Days for which the usage of the language model is kept.")
    clock_settle_minutes: float = Field(
        60.0,
        ge=0,
        description="Minutes for which the machine's clock must be steady, after it jumped ahead by more than one,"
        " before anything is pruned, expired, closed or deleted by it. Schedules and reminders wait for one minute.",
    )
    workspace_git: bool = Field(
        True, description="Keep each agent's MEMORY.md, DREAMS.md and notes as files in a git repository."
    )
    memory_file_bytes: int = Field(
        65_536, ge=1_024, description="Maximum size of MEMORY.md in bytes; the least relevant memories are left out."
    )
    maintenance_interval_hours: float = Field(
        24.0,
        gt=0,
        description="Hours between runs of the maintenance jobs: optimising databases, verifying them, and deleting"
        " messages that are past their retention.",
    )

    @property
    def decay_rates(self) -> Mapping[Tier, float]:
        """The share of a relevance that remains after one hour, by tier."""
        profile = RATES[self.decay_profile]
        own = {tier: getattr(self, f"decay_rate_{tier}") for tier in TIERS}
        return {tier: profile[tier] if own[tier] is None else own[tier] for tier in TIERS}

    @property
    def keep_rules(self) -> KeepRules:
        """For how long what has ended is kept."""
        from memory.upkeep.expiry import KeepRules  # here: it imports the database

        return KeepRules(
            curation_log_days=self.curation_log_days,
            dead_letter_days=self.dead_letter_days,
            dead_letters_kept=self.dead_letters_kept,
            ended_schedule_days=self.ended_schedule_days,
            unclaimed_reminder_days=self.unclaimed_reminder_days,
            receipt_days=self.receipt_days,
            usage_days=self.usage_days,
        )

    @property
    def curation_policy(self) -> CurationPolicy:
        """The thresholds of the jobs that promote, prune, merge and cap memories."""
        return CurationPolicy(
            rates=self.decay_rates,
            promote_relevance=self.promote_relevance,
            promote_access_count=self.promote_access_count,
            shared_min_users=self.dream_shared_min_users,
            shared_min_days=self.dream_shared_min_days,
            prune_relevance=self.prune_relevance,
            duplicate_similarity=self.duplicate_similarity,
            memories_per_scope=self.memories_per_scope,
            max_entries=self.max_entries,
        )

    @property
    def dream_rules(self) -> DreamRules:
        """What a dream sweep reads and promotes."""
        from memory.upkeep.dreaming import DreamRules  # here: it imports numpy and a stemmer

        return DreamRules(
            lookback_days=self.dream_lookback_days,
            min_hits=self.dream_min_hits,
            min_queries=self.dream_min_queries,
            min_score=self.dream_min_score,
            most_promotions=self.dream_most_promotions,
            shared_min_users=self.dream_shared_min_users,
            shared_min_days=self.dream_shared_min_days,
        )
