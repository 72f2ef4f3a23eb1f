"""The default embedder: all-MiniLM-L6-v2, or any sentence-transformers model.

On a CPU a mean-pooled BERT runs packed (see `packed_bert`); every other model runs in sentence_transformers itself.
Both give the same vectors up to rounding. The bundled model needs no network.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from adapters.embedders.base import DEFAULT_MODEL, EmbedderSpec, EmbedderUnavailable, normalised, require_text
from adapters.embedders.hardware import DType, choose_device, choose_dtype
from adapters.embedders.model_files import BUNDLED_NAMES, find_sentence_transformer

BUNDLED_DIMENSION: Final = 384
# Good batch sizes for sentence_transformers; a GPU needs larger ones.
CPU_BATCH_TEXTS: Final = 32
GPU_BATCH_TEXTS: Final = 256

Encode = Callable[[list[str]], NDArray[np.float32]]


class SentenceTransformersEmbedder:
    """A sentence-transformers model from a folder, from the package with the default model, or from the hub.

    `device` and `dtype` are the requested ones until `load` has resolved "auto".
    """

    def __init__(self, spec: EmbedderSpec) -> None:
        self.model = DEFAULT_MODEL if spec.model in BUNDLED_NAMES else spec.model
        self.dimension = BUNDLED_DIMENSION if spec.model in BUNDLED_NAMES else 0
        self.device: str = spec.device
        self.dtype: str = spec.dtype
        self._spec = spec
        self._encode: Encode | None = None
        self._loading = threading.Lock()

    def load(self) -> None:
        """Read the model, about 2 s the first time. Call it after a fork, never before.

        Raises EmbedderUnavailable if the files are missing, damaged or unreadable.
        """
        self._loaded()

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

    def _loaded(self) -> Encode:
        encode = self._encode
        if encode is None:
            with self._loading:
                encode = self._encode or self._open()
                self._encode = encode
        return encode

    def _open(self) -> Encode:
        folder = find_sentence_transformer(self._spec.model)
        try:
            import torch
        except (ImportError, OSError) as error:  # OSError: a shared library of torch cannot be loaded
            raise self._unreadable(folder, error) from error
        if self._spec.threads > 0:
            torch.set_num_threads(self._spec.threads)
        device = choose_device(self._spec.device)
        dtype = choose_dtype(self._spec.dtype, device, torch.cpu.get_capabilities())
        try:
            encode, dimension = _open_model(folder, device, dtype)
        # No narrower type covers the libraries: tokenizers raises bare Exception for a damaged file, safetensors and
        # torch raise types of their own, and transformers raises whatever a model's configuration leads to.
        except Exception as error:
            raise self._unreadable(folder, error) from error
        self.device, self.dtype, self.dimension = device, dtype, dimension
        return encode

    def _unreadable(self, folder: Path, error: Exception) -> EmbedderUnavailable:
        return EmbedderUnavailable(
            f"model {self.model!r} could not be read from {folder}: {type(error).__name__}: {error}."
            " Check the folder and that torch and sentence-transformers are installed"
        )


def _open_model(folder: Path, device: str, dtype: DType) -> tuple[Encode, int]:
    import torch

    from adapters.embedders.packed_bert import NotPackable, PackedBert

    torch_dtype: torch.dtype = getattr(torch, dtype)
    if device == "cpu":
        try:
            packed = PackedBert(folder, torch_dtype)
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
