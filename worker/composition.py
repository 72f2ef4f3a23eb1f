"""Builds the services that the rules of `memory/` use from the runtime and settings of this process."""

from __future__ import annotations

from memory.memories.extraction import Extractor, extract_session
from memory.memories.extraction_windows import ExtractionRules
from memory.sessions.condensers import Condenser
from memory.sessions.lifecycle import SessionEndHooks
from memory.sessions.summaries import MAX_SUMMARY_TOKENS, CompactionRules, RollingRules, SummaryRules
from memory.upkeep.notebook import publish
from storage.stores import Store
from worker.runtime import Runtime
from worker.settings import Settings


def build_extractor(runtime: Runtime) -> Extractor:
    """Return the extractor of memories: by the extraction model if one is configured, else by patterns."""
    settings = runtime.settings
    rules = ExtractionRules(
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
    """Return the rules for when sessions are summarised, and to which length."""
    return SummaryRules(settings.context_token_budget, RollingRules(), CompactionRules(), MAX_SUMMARY_TOKENS)


def session_end_hooks(runtime: Runtime) -> SessionEndHooks:
    """Return the hooks of a session's end: extraction of its last messages, then a commit of the memory files.

    Each does nothing if the settings disable it.
    """

    def extract(store: Store, agent: str, session: str) -> None:
        if runtime.settings.extraction_enabled:
            extract_session(store, build_extractor(runtime), agent=agent, session=session, now=runtime.now())

    def commit(store: Store, agent: str) -> None:
        publish(store, runtime.notebooks, agent, "A session ended", now=runtime.now())

    return SessionEndHooks(extract, commit)
