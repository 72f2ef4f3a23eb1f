"""Static word vectors (model2vec, potion): thousands of texts per second, less accurate than a transformer.

The package and the model are loaded by `load`; a model that cannot be loaded is EmbedderUnavailable.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from adapters.embedders.base import EmbedderSpec, EmbedderUnavailable, require_text
from adapters.embedders.model_files import fetch_from_hub

ALIASES: Final = {
    "potion_8m": "minishlab/potion-base-8M",
    "potion-base-8M": "minishlab/potion-base-8M",
    "potion_32m": "minishlab/potion-base-32M",
    "potion-base-32M": "minishlab/potion-base-32M",
}


class Model2VecEmbedder:
    """A model2vec StaticModel from a folder or from the hub."""

    device: Final = "cpu"
    dtype: Final = "float32"

    def __init__(self, spec: EmbedderSpec) -> None:
        self.model = ALIASES.get(spec.model, spec.model)
        self._static: Any = None
        self._loading = threading.Lock()

    @property
    def dimension(self) -> int:
        """Return the numbers per vector; 0 before `load`."""
        return 0 if self._static is None else int(self._static.dim)

    def load(self) -> None:
        """Read the model from its folder, else from the hub. Raises EmbedderUnavailable."""
        with self._loading:
            if self._static is None:
                self._static = _read_static_model(self.model)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return vectors of texts, shape (n, dimension).

        A text without any known word has no direction: it gets the first axis instead of an error, so that it is stored
        and can be found by keyword.
        """
        self.load()
        checked = require_text(texts)
        if not checked:
            return np.zeros((0, self.dimension), dtype=np.float32)
        found = np.asarray(self._static.encode(checked, use_multiprocessing=False), dtype=np.float32)
        lengths = np.linalg.norm(found, axis=1, keepdims=True)
        first_axis = np.eye(1, self.dimension, dtype=np.float32)
        return np.where(lengths > 0, found / np.maximum(lengths, np.float32(1e-30)), first_axis)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the vector of one query, shape (dimension,)."""
        vector: NDArray[np.float32] = self.embed([text])[0]
        return vector


def _read_static_model(name: str) -> Any:
    folder = Path(name) if Path(name).is_dir() else fetch_from_hub(name)
    try:
        from model2vec import StaticModel

        return StaticModel.from_pretrained(str(folder), force_download=False)
    except (ImportError, OSError, ValueError, KeyError) as error:
        raise EmbedderUnavailable(
            f"model2vec could not read {folder}: {error}. It must contain config.json, tokenizer.json and"
            " model.safetensors; fetch it again or name another folder"
        ) from error
