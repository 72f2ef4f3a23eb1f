"""Settings of sessions and their summaries."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from pydantic_settings import BaseSettings

from retrieval.context.budget import MIN_TOKENS
from reverie.errors import Rejected


class SessionSettings(BaseSettings):
    """How long sessions live, and when their oldest messages are summarised."""

    title: ClassVar[str] = "Sessions and summaries"

    session_idle_hours: float = Field(12.0, gt=0, description="Hours without a message after which a session ends.")
    working_memory_cap: int = Field(
        50, ge=1, le=1000, description="Number of newest messages of each session that are also kept in the broker."
    )
    context_token_budget: int = Field(
        100_000,
        ge=1,
        le=10_000_000,
        description="Tokens of the model's context window. Contexts and restored sessions are fitted into it, and"
        " sessions are summarised when they outgrow it.",
    )
    system_prompt_buffer: int = Field(
        8_000,
        ge=0,
        le=10_000_000,
        description="Tokens of `context_token_budget` that are left free for the system prompt.",
    )
    summary_interval_minutes: float = Field(
        5.0, gt=0, description="Minutes between checks for sessions that have outgrown their token budget."
    )
    summary_min_turns: int = Field(
        4, ge=1, description="Minimum number of unsummarised messages a session must have to be summarised."
    )
    summary_trigger_ratio: float = Field(
        0.8,
        gt=0,
        le=1,
        description="Share of `context_token_budget` above which the oldest messages of a session are summarised.",
    )
    summary_target_ratio: float = Field(
        0.5,
        gt=0,
        lt=1,
        description="Share of `context_token_budget` that a session uses at most after a summary. Must be less than"
        " `summary_trigger_ratio`.",
    )
    compaction_enabled: bool = Field(
        True, description="Compact a session when it comes within `compaction_reserve_tokens` of its token budget."
    )
    compaction_reserve_tokens: int = Field(
        16_384, ge=0, description="Tokens of `context_token_budget` that must stay free before compaction is due."
    )
    compaction_keep_recent_tokens: int = Field(
        20_000, ge=0, description="Tokens of the newest messages that compaction leaves as they are."
    )
    compaction_summary_max_tokens: int = Field(
        2_000, ge=100, description="Maximum length of a session's summary, in tokens."
    )
    consolidation_after_hours: float = Field(
        24.0, gt=0, description="Hours without a message after which all of a session is summarised."
    )
    message_retention_days: float | None = Field(
        None,
        gt=0,
        description="Days after which messages that are covered by a summary are deleted for good. Default: never.",
    )


def check_sessions(settings: SessionSettings) -> None:
    """Raise `Rejected` if the token budget leaves no room for a context, or a summary would not shorten a session."""
    if settings.context_token_budget - settings.system_prompt_buffer < MIN_TOKENS:
        raise Rejected(
            f"setting context_token_budget: {settings.context_token_budget:,} leaves less than {MIN_TOKENS} tokens"
            f" after system_prompt_buffer, which is {settings.system_prompt_buffer:,}; raise it or lower the buffer",
            field="context_token_budget",
        )
    if settings.summary_target_ratio >= settings.summary_trigger_ratio:
        raise Rejected(
            f"setting summary_target_ratio: {settings.summary_target_ratio:g} must be less than"
            f" summary_trigger_ratio, which is {settings.summary_trigger_ratio:g}",
            field="summary_target_ratio",
        )
