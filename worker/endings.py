"""What is done around the end of a session in one process: a last extraction before it, a commit to git after it."""

from __future__ import annotations

from memory.memories.extraction import extract_session
from memory.sessions.lifecycle import SessionEndHooks
from memory.upkeep.notebook import publish
from storage.stores import Store
from worker.extractor import extractor_of
from worker.runtime import Runtime


def ending_of(here: Runtime) -> SessionEndHooks:
    """Extraction and git as the settings have them; what is switched off is left out."""

    def extract(store: Store, agent: str, session: str) -> None:
        if here.settings.extraction_enabled:
            extract_session(store, extractor_of(here), agent=agent, session=session, now=here.now())

    def commit(store: Store, agent: str) -> None:
        publish(
            store,
            here.repositories,
            agent,
            "A session ended",
            now=here.now(),
            memory_file_bytes=here.settings.memory_file_bytes,
        )

    return SessionEndHooks(extract, commit)
