"""What extraction of memories works with in one process: the settings' rules, the model, the stores."""

from __future__ import annotations

from memory.memories.extraction_reading import Extractor
from memory.memories.extraction_window import ExtractionRules
from worker.runtime import Runtime


def extractor_of(here: Runtime) -> Extractor:
    """What extraction works with in this process."""
    settings = here.settings
    rules = ExtractionRules(
        min_characters=settings.extraction_min_message_length,
        debounce_seconds=settings.extraction_debounce_seconds,
        threshold=settings.extraction_confidence_threshold,
        fallback=settings.deterministic_fallback,
    )
    return Extractor(
        rules=rules,
        model=here.extraction_model,
        account=here.stores.account_store,
        on_added=lambda name: here.notify_stage("chunk", name),
    )
