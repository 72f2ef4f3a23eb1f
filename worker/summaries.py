"""What the summaries of this process are made with and by: the settings' numbers, and who condenses."""

from __future__ import annotations

from memory.sessions.condensers import Condenser
from memory.sessions.summaries import SummaryNumbers
from memory.sessions.summary_plan import CompactionNumbers, RollingNumbers
from worker.runtime import Runtime
from worker.settings import Settings


def condenser_of(runtime: Runtime) -> Condenser:
    """The language model of this process where there is one, else the deterministic way."""
    return Condenser(runtime.tokens, runtime.language_model, runtime.settings.deterministic_fallback)


def summary_numbers(settings: Settings) -> SummaryNumbers:
    """When sessions are summarised, and how far."""
    compaction = CompactionNumbers(settings.compaction_reserve_tokens, settings.compaction_keep_recent_tokens)
    return SummaryNumbers(
        budget_tokens=settings.context_token_budget,
        rolling=RollingNumbers(
            settings.summary_min_turns, settings.summary_trigger_ratio, settings.summary_target_ratio
        ),
        compaction=compaction if settings.compaction_enabled else None,
        summary_most_tokens=settings.compaction_summary_max_tokens,
    )
