"""What the embedders that run a transformer in this process share: when torch is imported, and what it runs on."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Generic, TypeVar

from adapters.embedders import native_memory
from adapters.embedders.base import EmbedderSpec, EmbedderUnavailable
from adapters.embedders.hardware import DType, choose_device, choose_dtype

ModelT = TypeVar("ModelT")


class LocalTransformer(ABC, Generic[ModelT]):
    """Opens a model once, on first use, whichever thread comes first.

    `device` and `dtype` are the requested ones until `load` has resolved "auto".
    """

    def __init__(self, spec: EmbedderSpec, *, model: str, dimension: int) -> None:
        self.model = model
        self.dimension = dimension
        self.device: str = spec.device
        self.dtype: str = spec.dtype
        self._spec = spec
        self._opened: ModelT | None = None
        self._loading = threading.Lock()

    def load(self) -> None:
        """Read the model, about 2 s the first time. Call it after a fork, never before.

        Raises EmbedderUnavailable if the files are missing, damaged or unreadable.
        """
        self._loaded()

    @abstractmethod
    def _find(self) -> Path:
        """Return the file or folder of the model. Raises EmbedderUnavailable."""

    @abstractmethod
    def _open(self, path: Path, device: str, dtype: DType) -> tuple[ModelT, int]:
        """Return the opened model and its dimension."""

    def _loaded(self) -> ModelT:
        opened = self._opened
        if opened is None:
            with self._loading:
                opened = self._opened or self._open_here()
                self._opened = opened
        return opened

    def _open_here(self) -> ModelT:
        path = self._find()
        native_memory.limit()
        try:
            import torch
        except (ImportError, OSError) as error:  # OSError: a shared library of torch cannot be loaded
            raise self._unreadable(path, error) from error
        if self._spec.threads > 0:
            torch.set_num_threads(self._spec.threads)
        device = choose_device(self._spec.device)
        dtype = choose_dtype(self._spec.dtype, device, torch.cpu.get_capabilities())
        try:
            opened, dimension = self._open(path, device, dtype)
        # No narrower type covers the libraries: tokenizers raises bare Exception for a damaged file, safetensors and
        # torch raise types of their own, and transformers raises whatever a model's configuration leads to.
        except Exception as error:
            raise self._unreadable(path, error) from error
        self.device, self.dtype, self.dimension = device, dtype, dimension
        return opened

    def _unreadable(self, path: Path, error: Exception) -> EmbedderUnavailable:
        return EmbedderUnavailable(
            f"model {self.model!r} could not be read from {path}: {type(error).__name__}: {error}."
            " Check the folder and that torch and sentence-transformers are installed"
        )
