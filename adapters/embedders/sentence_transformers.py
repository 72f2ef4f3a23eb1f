"""The default embedder: all-MiniLM-L6-v2, or any sentence-transformers model.

On a CPU a mean-pooled BERT runs packed (see `packed_bert`); every other model runs in sentence_transformers itself.
Both give the same vectors up to rounding. The bundled model needs no network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from adapters.embedders.base import DEFAULT_MODEL, EmbedderSpec, normalised, require_text
from adapters.embedders.hardware import DType
from adapters.embedders.local_transformer import LocalTransformer
from adapters.embedders.model_files import BUNDLED_NAMES, find_sentence_transformer

BUNDLED_DIMENSION: Final = 384
# Good batch sizes for sentence_transformers; a GPU needs larger ones.
CPU_BATCH_TEXTS: Final = 32
GPU_BATCH_TEXTS: Final = 256

Encode = Callable[[list[str]], NDArray[np.float32]]


class SentenceTransformersEmbedder(LocalTransformer[Encode]):
    """A sentence-transformers model from a folder, from the package with the default model, or from the hub."""

    def __init__(self, spec: EmbedderSpec) -> None:
        bundled = spec.model in BUNDLED_NAMES
        super().__init__(
            spec, model=DEFAULT_MODEL if bundled else spec.model, dimension=BUNDLED_DIMENSION if bundled else 0
        )

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return vectors of texts, shape (n, dimension); texts beyond the model's length are truncated."""
        encode = self._loaded()
        checked = require_text(texts)
        if not checked:
            return np.zeros((0, self.dimension), dtype=np.float32)
        return normalised(encode(checked), source=self.model)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the vector of one query, shape (dimension,): 1.3 ms in bfloat16 on two cores."""
        vector: NDArray[np.float32] = self.embed([text])[0]
        return vector

    def _find(self) -> Path:
        return find_sentence_transformer(self._spec.model)

    def _open(self, path: Path, device: str, dtype: DType) -> tuple[Encode, int]:
        return _open_model(path, device, dtype)


def _open_model(folder: Path, device: str, dtype: DType) -> tuple[Encode, int]:
    import torch

    from adapters.embedders.packed_bert import NotPackable, PackedBert

    torch_dtype: torch.dtype = getattr(torch, dtype)
    if device == "cpu":
        try:
            packed = PackedBert.open(folder, torch_dtype)
        except NotPackable:
            pass  # another kind of model: sentence_transformers supports them all
        else:
            return packed.embed, packed.dimension
    return open_with_library(folder, device, dtype)


def open_with_library(folder: Path, device: str, dtype: DType) -> tuple[Encode, int]:
    """Open a model with sentence_transformers; return its encode function and its dimension."""
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    library = SentenceTransformer(
        str(folder), device=device, local_files_only=True, model_kwargs={"dtype": getattr(torch, dtype)}
    )
    batch = CPU_BATCH_TEXTS if device == "cpu" else GPU_BATCH_TEXTS

    def encode(texts: list[str]) -> NDArray[np.float32]:
        found = library.encode(texts, batch_size=batch, show_progress_bar=False, convert_to_numpy=True)
        return np.asarray(found, dtype=np.float32)

    dimension = library.get_embedding_dimension()
    return encode, dimension or encode(["dimension"]).shape[1]
