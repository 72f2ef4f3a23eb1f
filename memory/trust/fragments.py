"""Keyed hashes of parts of erased texts, by which any file can be searched for what must no longer be in it.

A part is a window of 32 bytes (16 of shorter texts) of the text in one of its forms: plain, JSON-escaped, base64 and
UTF-16. Only the hashes of the windows are kept, so that an interrupted erasure can go on without the content. The hash
of every window of a file is computed at once: by doubling, as h(2n)[i] = h(n)[i] * r^n + h(n)[i + n] modulo 2^64, of
bytes that a secret table replaces by random numbers.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

WIDE: Final = 32
NARROW: Final = 16
# Windows of a text begin this many bytes apart, and one ends with it: a page of a database holds dozens of them.
_STEP_BYTES: Final = 96
# A window of fewer different bytes is a line of dashes or blanks, which is anywhere.
_LEAST_DIFFERENT: Final = 6
# One hash pass over this many bytes of texts takes some milliseconds.
_BATCH_BYTES: Final = 1 << 20
_FILTER_BITS: Final = 20

FORMS: Final = ("plain", "JSON", "base64", "UTF-16")

Hashes = NDArray[np.uint64]
_NONE: Final[Hashes] = np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True)
class HashKey:
    """The secret from which hashes are computed."""

    secret: bytes
    _table: Hashes = field(init=False, repr=False)
    _base: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Derive the table of bytes and the base of the polynomial."""
        stream = hashlib.shake_256(b"reverie fragments" + self.secret).digest(257 * 8)
        numbers = np.frombuffer(stream, "<u8")
        object.__setattr__(self, "_table", numbers[:256].astype(np.uint64))
        object.__setattr__(self, "_base", int(numbers[256]) | 1)

    def windows(self, data: bytes) -> tuple[Hashes, Hashes]:
        """Return the hashes of all windows of 32 and of 16 bytes, by the position at which each begins."""
        level = self._table[np.frombuffer(data, np.uint8)]
        factor, width, narrow = self._base, 1, _NONE
        while width < WIDE:
            level = _NONE if len(level) <= width else level[:-width] * np.uint64(factor) + level[width:]
            factor = factor * factor % 2**64
            width *= 2
            if width == NARROW:
                narrow = level
        return level, narrow

    def name(self, text: str) -> int:
        """Return the hash of a whole name or id."""
        return int.from_bytes(hashlib.blake2b(text.encode(), key=self.secret[:64], digest_size=8).digest(), "little")

    def tombstone(self, *parts: str) -> str:
        """Return the keyed hash by which something erased is recognised, in hexadecimal."""
        return hmac.new(self.secret, json.dumps(parts).encode(), hashlib.sha256).hexdigest()


@dataclass(slots=True)
class FragmentSet:
    """Hashes of windows and of names; `too_short` counts the texts that no window fits into."""

    wide: Hashes = field(default_factory=lambda: _NONE)
    narrow: Hashes = field(default_factory=lambda: _NONE)
    names: Hashes = field(default_factory=lambda: _NONE)
    too_short: int = 0

    def __len__(self) -> int:
        """Return how many windows there are."""
        return len(self.wide) + len(self.narrow)

    def add(self, other: FragmentSet) -> None:
        """Add the hashes of another set."""
        self.wide = np.union1d(self.wide, other.wide)
        self.narrow = np.union1d(self.narrow, other.narrow)
        self.names = np.union1d(self.names, other.names)
        self.too_short += other.too_short

    def without(self, other: FragmentSet) -> FragmentSet:
        """Return the set without the windows of another."""
        return FragmentSet(
            np.setdiff1d(self.wide, other.wide), np.setdiff1d(self.narrow, other.narrow), self.names, self.too_short
        )

    def dump(self) -> dict[str, bytes]:
        """Return the hashes by kind, as they are stored."""
        return {name: getattr(self, name).astype("<u8").tobytes() for name in ("wide", "narrow", "names")} | {
            "too_short": self.too_short.to_bytes(8, "little") if self.too_short else b""
        }

    @classmethod
    def load(cls, stored: Iterable[tuple[str, bytes]]) -> FragmentSet:
        """Return the set of what `dump` returned, in any number of parts."""
        parts: dict[str, list[Hashes]] = {"wide": [], "narrow": [], "names": [], "too_short": []}
        for kind, raw in stored:
            parts[kind].append(np.frombuffer(raw, "<u8").astype(np.uint64))
        merged = {kind: np.unique(np.concatenate(found)) if found else _NONE for kind, found in parts.items()}
        too_short = int(np.concatenate(parts["too_short"]).sum()) if parts["too_short"] else 0
        return cls(merged["wide"], merged["narrow"], merged["names"], too_short)


class Matcher:
    """Finds the windows of a set in bytes."""

    def __init__(self, key: HashKey, fragments: FragmentSet) -> None:
        self._key = key
        self._wide = _Members(fragments.wide)
        self._narrow = _Members(fragments.narrow)

    def found_in(self, data: bytes) -> FragmentSet:
        """Return those windows of the set that the bytes contain."""
        if len(data) < NARROW:
            return FragmentSet()
        wide, narrow = self._key.windows(data)
        return FragmentSet(self._wide.among(wide), self._narrow.among(narrow))

    def is_in(self, data: bytes) -> bool:
        """Return whether the bytes contain any window of the set."""
        return len(self.found_in(data)) > 0


class _Members:
    """A set of hashes; most of a file is sorted out by one look at a table of bits."""

    def __init__(self, hashes: Hashes) -> None:
        self._hashes = np.unique(hashes)
        self._filter = np.zeros(1 << _FILTER_BITS, np.bool_)
        self._filter[self._hashes >> np.uint64(64 - _FILTER_BITS)] = True

    def among(self, windows: Hashes) -> Hashes:
        """Return the members that are among these."""
        if not len(self._hashes) or not len(windows):
            return _NONE
        likely = windows[self._filter[windows >> np.uint64(64 - _FILTER_BITS)]]
        return np.intersect1d(likely, self._hashes)


def fragments_of(
    key: HashKey, texts: Iterable[str], *, raw: Iterable[bytes] = (), names: Iterable[str] = ()
) -> FragmentSet:
    """Return the set of texts in all forms, of raw bytes (vectors) as they are, and of names."""
    result = FragmentSet()
    batch: list[bytes] = []
    size = 0
    for form in _all_forms(texts, raw, result):
        batch.append(form)
        size += len(form)
        if size >= _BATCH_BYTES:
            result.add(_of_batch(key, batch))
            batch, size = [], 0
    result.add(_of_batch(key, batch))
    result.names = np.unique(np.array([key.name(name) for name in names], np.uint64))
    return result


def texts_in(value: Any) -> Iterator[str]:
    """Yield all texts in a JSON value, keys of objects included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from texts_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts_in(inner)


def _all_forms(texts: Iterable[str], raw: Iterable[bytes], result: FragmentSet) -> Iterator[bytes]:
    for text in texts:
        plain = text.encode("utf-8", "surrogatepass")
        if len(plain) < NARROW:
            result.too_short += 1
        yield from forms_of(text)
    yield from raw


def forms_of(text: str) -> Iterator[bytes]:
    """Yield the forms of a text: plain, JSON-escaped in two ways, base64 at three alignments, UTF-16 in both orders."""
    plain = text.encode("utf-8", "surrogatepass")
    yield plain
    escaped = {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]} - {text}
    yield from (form.encode("utf-8", "surrogatepass") for form in escaped)
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + plain)
        # Without the characters that depend on what is before and after the text.
        first, spare = (0, 2, 3)[shift], (len(plain) + shift) % 3
        yield encoded[first : len(encoded) - 4 if spare else len(encoded)]
    yield text.encode("utf-16-le", "surrogatepass")
    yield text.encode("utf-16-be", "surrogatepass")


def _of_batch(key: HashKey, forms: list[bytes]) -> FragmentSet:
    """Return the windows of forms, by one hash pass over all of them."""
    if not forms:
        return FragmentSet()
    data = b"".join(forms)
    starts: dict[int, list[NDArray[np.int64]]] = {WIDE: [], NARROW: []}
    at = 0
    for form in forms:
        width = WIDE if len(form) >= WIDE else NARROW
        last = len(form) - width
        if last >= 0:
            starts[width].append(at + np.append(np.arange(0, last, _STEP_BYTES), last))
        at += len(form)
    wide, narrow = key.windows(data)
    array = np.frombuffer(data, np.uint8)
    return FragmentSet(_chosen(wide, array, starts[WIDE], WIDE), _chosen(narrow, array, starts[NARROW], NARROW))


def _chosen(hashes: Hashes, data: NDArray[np.uint8], starts: list[NDArray[np.int64]], width: int) -> Hashes:
    """Return the hashes at these positions, without windows that say too little."""
    if not starts:
        return _NONE
    positions = np.concatenate(starts)
    ordered = np.sort(np.lib.stride_tricks.sliding_window_view(data, width)[positions], axis=1)
    different = (ordered[:, 1:] != ordered[:, :-1]).sum(axis=1) + 1
    return np.unique(hashes[positions[different >= _LEAST_DIFFERENT]])
