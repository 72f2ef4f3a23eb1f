"""Builds what the rules of `memory/` work with from the runtime and settings of this process."""

from __future__ import annotations

from memory.memories.extraction import extract_session
from memory.memories.extraction_reading import Extractor
from memory.memories.extraction_window import ExtractionRules
from memory.sessions.condensers import Condenser
from memory.sessions.lifecycle import SessionEndHooks
from memory.sessions.summaries import SummaryRules
from memory.sessions.summary_plan import CompactionRules, RollingRules
from memory.upkeep.notebook import publish
from storage.stores import Store
from worker.runtime import Runtime
from worker.settings import Settings


def build_extractor(runtime: Runtime) -> Extractor:
    """Return the extractor of memories: by the extraction model if one is configured, else by patterns."""
    settings = runtime.settings
    rules = ExtractionRules(
        min_characters=settings.extraction_min_message_length,
        debounce_seconds=settings.extraction_debounce_seconds,
        threshold=settings.extraction_confidence_threshold,
        fallback=settings.deterministic_fallback,
    )
    return Extractor(
        rules=rules,
        model=runtime.extraction_model,
        account=runtime.stores.account_store,
        on_added=lambda name: runtime.notify_stage("chunk", name),
        tenant_of=runtime.stores.stored_tenant_of,
    )


def build_condenser(runtime: Runtime) -> Condenser:
    """Return the condenser of summaries: the language model if one is configured, else deterministic."""
    return Condenser(runtime.tokens, runtime.language_model, runtime.settings.deterministic_fallback)


def summary_rules(settings: Settings) -> SummaryRules:
    """Return when sessions are summarised, and the lengths to reach."""
    compaction = CompactionRules(settings.compaction_reserve_tokens, settings.compaction_keep_recent_tokens)
    return SummaryRules(
        budget_tokens=settings.context_token_budget,
        rolling=RollingRules(settings.summary_min_turns, settings.summary_trigger_ratio, settings.summary_target_ratio),
        compaction=compaction if settings.compaction_enabled else None,
        max_summary_tokens=settings.compaction_summary_max_tokens,
    )


def session_end_hooks(runtime: Runtime) -> SessionEndHooks:
    """Return what ending a session runs: extraction of its last messages, then a commit of the memory files.

    Each does nothing if the settings disable it.
    """

    def extract(store: Store, agent: str, session: str) -> None:
        if runtime.settings.extraction_enabled:
            extract_session(store, build_extractor(runtime), agent=agent, session=session, now=runtime.now())

    def commit(store: Store, agent: str) -> None:
        publish(store, runtime.notebooks, agent, "A session ended", now=runtime.now())

    return SessionEndHooks(extract, commit)
