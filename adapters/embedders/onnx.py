"""The default model without torch: all-MiniLM-L6-v2 with 8-bit weights, computed by onnxruntime.

The weights come in a package of 23 MB, the tokenizer with this one. The vectors are those of torch up to rounding
(cosine .9988 or more), and are stored under the same name: a store may hold both.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from adapters.embedders.base import DEFAULT_MODEL, EmbedderSpec, EmbedderUnavailable, TextEmbedder, normalised
from adapters.embedders.local import BUNDLED_DIMENSION, limit_memory
from adapters.embedders.model_files import TOKENIZER, find_onnx

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# The setting that chooses it also where torch is installed.
ONNX_DEVICE: Final = "onnx"
_MAX_TOKENS: Final = 256


class OnnxEmbedder(TextEmbedder):
    """Embeds one text at a time: 180 short ones a second on two cores, as batches of 8 or 32 do within a tenth."""

    model: Final = DEFAULT_MODEL
    dimension = BUNDLED_DIMENSION
    device: Final = "cpu (onnxruntime)"
    dtype: Final = "int8"

    def __init__(self, spec: EmbedderSpec) -> None:
        self._spec = spec
        self._session: Any = None
        self._tokenizer: Tokenizer | None = None
        self._loading = threading.Lock()

    def load(self) -> None:
        """Read the model, 0.5 s. Call it after a fork. Raises EmbedderUnavailable."""
        with self._loading:
            if self._session is None:
                self._open()

    def _open(self) -> None:
        if self._spec.device not in ("auto", "cpu", ONNX_DEVICE):
            raise EmbedderUnavailable(
                f"embedding_device {self._spec.device!r} needs torch: pip install 'reverie-pipeline[local]'"
            )
        file = find_onnx()
        limit_memory()
        try:
            import onnxruntime
            from tokenizers import Tokenizer
        except (ImportError, OSError) as error:
            raise EmbedderUnavailable(f"onnxruntime or tokenizers cannot be imported: {error}") from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._spec.threads
        # A thread that waits for work by spinning takes the core from the other processes: on a busy machine 200 texts
        # a second become a few.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # Plans of memory are kept for each length of a text.
        options.enable_mem_pattern = False
        tokenizer = Tokenizer.from_file(str(TOKENIZER))
        tokenizer.no_padding()
        tokenizer.enable_truncation(_MAX_TOKENS)
        self._tokenizer = tokenizer
        self._session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])

    def _embed(self, texts: list[str]) -> NDArray[np.float32]:
        assert self._tokenizer is not None
        encoded = self._tokenizer.encode_batch_fast(texts)
        return normalised(np.stack([self._mean(encoding.ids) for encoding in encoded]), source=self.model)

    def _mean(self, ids: list[int]) -> NDArray[np.float32]:
        """Return the mean of the vectors of a text's tokens."""
        tokens = np.array([ids], dtype=np.int64)
        inputs = {
            "input_ids": tokens,
            "attention_mask": np.ones_like(tokens),
            "token_type_ids": np.zeros_like(tokens),
        }
        mean: NDArray[np.float32] = self._session.run(["last_hidden_state"], inputs)[0][0].mean(axis=0)
        return mean
