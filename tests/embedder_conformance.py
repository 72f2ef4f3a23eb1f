"""What every embedder must do. A test class inherits this and gives a loaded `embedder` fixture."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from adapters.embedders.base import Embedder, EmbeddingRefused

# Of all lengths, so that an embedder that sorts by length has to put the rows back.
TEXTS = [
    "short",
    "Ada: the choir sang in the old harbour hall last night and I could not stop smiling on the way home",
    "a",
    "Ben: we repaired the boat",
    "Grüße aus Köln, 東京 and 🏕️ \u200d",
    "one two three four five six seven eight nine ten " * 8,
    "two words",
    "line\nbreak\ttab\0nul",
]


class EmbedderConformance:
    """Inherit in a class named Test..., and give the fixture `embedder`."""

    # Whether a text asked has another vector than the same text stored.
    has_roles = False

    def test_vectors_are_unit_length_float32_rows(self, embedder: Embedder) -> None:
        vectors = embedder.embed(TEXTS)

        assert vectors.shape == (len(TEXTS), embedder.dimension)
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-4)

    def test_no_texts_give_no_rows(self, embedder: Embedder) -> None:
        assert embedder.embed([]).shape == (0, embedder.dimension)

    def test_row_i_belongs_to_text_i_whatever_stands_beside_it(self, embedder: Embedder) -> None:
        together = embedder.embed(TEXTS)
        alone = np.concatenate([embedder.embed([text]) for text in TEXTS])
        asked = np.stack([embedder.embed_query(text) for text in TEXTS])
        backwards = embedder.embed(TEXTS[::-1])[::-1]

        assert (together * alone).sum(axis=1).min() > 0.999
        assert self.has_roles or (together * asked).sum(axis=1).min() > 0.999
        assert (together * backwards).sum(axis=1).min() > 0.999

    def test_the_same_text_twice_gives_the_same_vector_twice(self, embedder: Embedder) -> None:
        first, second = embedder.embed(["the same text", "the same text"])

        assert float(first @ second) > 0.9999

    def test_a_query_has_one_axis(self, embedder: Embedder) -> None:
        assert embedder.embed_query("where did we camp?").shape == (embedder.dimension,)

    @pytest.mark.parametrize("text", ["", " ", "\n", "\u200b", "!!!", "é" * 5000, "word " * 20_000])
    def test_odd_and_long_texts_have_a_vector(self, embedder: Embedder, text: str) -> None:
        vector = embedder.embed_query(text)

        assert np.isfinite(vector).all()
        assert float(vector @ vector) == pytest.approx(1, abs=1e-3)

    def test_a_lone_surrogate_is_refused(self, embedder: Embedder) -> None:
        with pytest.raises(EmbeddingRefused, match="text 1 of 2"):
            embedder.embed(["fine", "\ud800"])

    def test_loading_again_and_from_several_threads_changes_nothing(self, embedder: Embedder) -> None:
        before = embedder.embed_query("hello")

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: embedder.load(), range(8)))
            after = list(pool.map(embedder.embed_query, ["hello"] * 8))

        assert min(float(before @ vector) for vector in after) > 0.999

    def test_it_says_what_it_is(self, embedder: Embedder) -> None:
        assert embedder.model
        assert embedder.dimension > 0
        assert embedder.device in {"cpu", "cpu (onnxruntime)", "cuda", "mps", "remote"}
        assert embedder.dtype in {"float32", "bfloat16", "float16", "int8"}
