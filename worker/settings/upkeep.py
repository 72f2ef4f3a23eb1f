"""The settings of the life of memories: how they fade, are consolidated, extracted, dreamt of and kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings

from memory.upkeep.relevance import LifePolicy
from storage.memories.decay import RATES
from storage.memories.records import TIERS, Tier


class LifeSettings(BaseSettings):
    """What an operator can set of the jobs that curate. The names are those of the five systems that Reverie unites."""

    decay_profile: Literal["standard", "fast"] = Field(
        "standard", description="How fast what was not recalled for a while loses its rank."
    )
    decay_rate_account: float | None = Field(
        None, gt=0, le=1, description="What is left of a relevance after an hour, instead of the profile's."
    )
    decay_rate_workspace: float | None = Field(None, gt=0, le=1, description="The same for the workspace tier.")
    decay_rate_channel: float | None = Field(None, gt=0, le=1, description="The same for the channel tier.")
    decay_rate_conversation: float | None = Field(
        None, gt=0, le=1, description="The same for the conversation tier, where it serves ranking alone."
    )
    consolidation_interval_hours: float = Field(
        6.0, gt=0, description="How often memories and old conversations are consolidated."
    )
    promote_relevance: float = Field(0.7, ge=0, description="A short-term memory above this may become long-term,")
    promote_access_count: int = Field(3, ge=0, description="if it was recalled more often than this.")
    prune_relevance: float = Field(0.01, ge=0, description="A memory below this relevance is pruned.")
    duplicate_similarity: float = Field(
        0.95, gt=0.5, le=1, description="Memories of the same place with a cosine above this are merged."
    )
    memories_per_scope: int = Field(10_000, ge=1, description="Memories of an agent in a tier; the least relevant go.")
    max_entries: int | None = Field(None, ge=1, description="Memories of an agent in all; without it, no cap.")
    auto_gc: bool = Field(True, description="Whether expired and decayed memories are pruned at the start, too.")
    prune_interval_hours: float = Field(1.0, gt=0, description="How often they are pruned.")
    extraction_enabled: bool = Field(True, description="Whether memories are extracted from what users say.")
    extraction_model: str | None = Field(
        None, description="The language model's name for extraction; without it, `language_model`."
    )
    extraction_min_message_length: int = Field(20, ge=1, description="Shorter messages hold nothing to extract.")
    extraction_debounce_seconds: float = Field(
        30.0, ge=0, le=3_600, description="How long a session must be silent before something is extracted from it."
    )
    extraction_confidence_threshold: float = Field(0.7, ge=0, le=1, description="What is less certain is not kept.")
    summary_interval_minutes: float = Field(5.0, gt=0, description="How often it is looked for sessions to summarise.")
    summary_min_turns: int = Field(4, ge=1, description="Messages to summarise, at the least.")
    summary_trigger_ratio: float = Field(
        0.8, gt=0, le=1, description="Of the token budget in use, above which a session is summarised,"
    )
    summary_target_ratio: float = Field(0.5, gt=0, lt=1, description="down to this part.")
    compaction_enabled: bool = Field(True, description="Whether sessions that outgrow the budget are compacted.")
    compaction_reserve_tokens: int = Field(16_384, ge=0, description="Kept free in the budget: beyond, it is done.")
    compaction_keep_recent_tokens: int = Field(20_000, ge=0, description="The newest turns, which are never condensed.")
    compaction_summary_max_tokens: int = Field(2_000, ge=100, description="A session's summary has at most these.")
    consolidation_after_hours: float = Field(
        24.0, gt=0, description="A session in which nothing was said for so long is summarised whole."
    )
    session_idle_hours: float = Field(12.0, gt=0, description="A session in which nothing was said for so long ends.")
    dream_enabled: bool = Field(True, description="Whether dream sweeps promote what is recalled often.")
    dream_interval_hours: float = Field(24.0, gt=0, description="How often a dream sweep runs.")
    dream_lookback_days: float = Field(30.0, gt=0, description="The recalls that a dream sweep looks at.")
    dream_min_hits: int = Field(3, ge=1, description="How often something must have been recalled to be promoted,")
    dream_min_queries: int = Field(2, ge=1, description="by how many different queries,")
    dream_min_score: float = Field(0.35, ge=0, le=1, description="and its least score.")
    dream_most_promotions: int = Field(20, ge=1, description="Promotions of an agent in one sweep, the best first.")
    message_retention_days: float | None = Field(
        None,
        gt=0,
        description="Messages that are part of a summary are removed for good after so long; without it, never.",
    )
    curation_log_days: float = Field(90.0, gt=0, description="How long it can be undone what jobs did.")
    workspace_git: bool = Field(True, description="Whether each agent's MEMORY.md and notes are kept in git.")
    memory_file_bytes: int = Field(65_536, ge=1_024, description="The largest MEMORY.md that is written.")
    deterministic_fallback: bool = Field(
        True, description="Whether a language model that is away is stood in for; else its work waits for it."
    )
    language_model_input_price: float = Field(0.0, ge=0, description="Of a million tokens, in any currency.")
    language_model_output_price: float = Field(0.0, ge=0, description="Of a million tokens, in the same.")

    @property
    def decay_rates(self) -> Mapping[Tier, float]:
        """What is left of a relevance after an hour, by tier."""
        profile = RATES[self.decay_profile]
        own = {tier: getattr(self, f"decay_rate_{tier}") for tier in TIERS}
        return {tier: profile[tier] if own[tier] is None else own[tier] for tier in TIERS}

    @property
    def life_policy(self) -> LifePolicy:
        """What the jobs go by that promote, prune, merge and cap."""
        return LifePolicy(
            rates=self.decay_rates,
            promote_relevance=self.promote_relevance,
            promote_access_count=self.promote_access_count,
            prune_relevance=self.prune_relevance,
            duplicate_similarity=self.duplicate_similarity,
            memories_per_scope=self.memories_per_scope,
            max_entries=self.max_entries,
        )
