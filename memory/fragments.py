"""Keyed hashes of parts of erased texts, by which any file can be searched for what must no longer be in it.

A part is a window of 32 bytes (16 of shorter texts) of the text in one of its forms: plain, JSON-escaped, base64 and
UTF-16. Only the hashes of the windows are kept, so that an interrupted erasure can go on without the content. The hash
of every window of a file is computed at once: by doubling, as h(2n)[i] = h(n)[i] * r^n + h(n)[i + n] modulo 2^64, of
bytes that a secret table replaces by random numbers.

A text that no window fits into is a token: it is found where it stands as a whole, between bytes that belong to no
word, in small or capital letters.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reverie.parts import in_parts

WIDE: Final = 32
NARROW: Final = 16
# A token of fewer bytes is found by chance in a gigabyte of vectors; one of digits alone is a time or a number.
SHORTEST: Final = 6
# Windows of a text begin this many bytes apart, and one ends with it: a page of a database holds dozens of them.
_STEP_BYTES: Final = 96
# A window with fewer different bytes is a line of dashes or blanks, which occurs everywhere.
_LEAST_DIFFERENT: Final = 6
# One hash pass over this many bytes of texts takes some milliseconds.
_BATCH_BYTES: Final = 1 << 20
# At most one in 16 bits of a filter is set, so that few windows of a file have to be compared one by one.
_FILTER_BITS: Final = 20
_BITS_OF_A_PLACE: Final = 4

# A time identifies nobody: other people's data contains the same minute.
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d[\d:.]{0,12}(?:Z|[+-]\d\d:\d\d)?")

FORMS: Final = ("plain", "JSON", "base64", "UTF-16")

Hashes = NDArray[np.uint64]
_NONE: Final[Hashes] = np.empty(0, np.uint64)
_IN_WORDS: Final = np.array([byte >= 0x80 or chr(byte).isalnum() or byte == ord("_") for byte in range(256)])
_LOWER: Final = np.array([byte + 32 if ord("A") <= byte <= ord("Z") else byte for byte in range(256)], np.uint8)


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

    def tokens(self, data: bytes, *, within_words: bool = False) -> Iterator[Hashes]:
        """Yield the hashes of all runs of 6 to 15 bytes that begin and end with a word, or `within_words` anywhere.

        One array for each length: those of a megabyte, together and sorted, took 240 MB and a second.
        """
        found = _LOWER[np.frombuffer(data, np.uint8)]
        size = len(found)
        is_word = np.concatenate([[False], _IN_WORDS[found], [False]])  # place i is that of byte i - 1
        begins = np.arange(size) if within_words else np.flatnonzero(is_word[1:-1] & ~is_word[:-2])
        numbers, hashes = self._table[found], np.zeros(len(begins), np.uint64)
        for width in range(1, NARROW):
            fits = begins + width <= size
            begins, hashes = begins[fits], hashes[fits]
            hashes = hashes * np.uint64(self._base) + numbers[begins + (width - 1)]
            if width >= SHORTEST:
                ends = begins + width
                whole = slice(None) if within_words else is_word[ends] & ~is_word[ends + 1]
                yield hashes[whole] + np.uint64(width)

    def token(self, text: str) -> Hashes:
        """Return the hash of a text that is looked for as a token; none if it is too short or has no letter."""
        plain = text.encode("utf-8", "surrogatepass")
        bounds = [place for place, byte in enumerate(plain) if _IN_WORDS[byte]]
        trimmed = plain[bounds[0] : bounds[-1] + 1] if bounds else b""
        if not SHORTEST <= len(trimmed) < NARROW or not any(letter.isalpha() for letter in text):
            return _NONE
        return self._whole(trimmed)

    def _whole(self, plain: bytes) -> Hashes:
        value = 0
        for byte in plain:
            value = (value * self._base + int(self._table[_LOWER[byte]])) % 2**64
        return np.array([(value + len(plain)) % 2**64], np.uint64)

    def name(self, text: str) -> int:
        """Return the hash of a whole name or id."""
        return int.from_bytes(hashlib.blake2b(text.encode(), key=self.secret[:64], digest_size=8).digest(), "little")

    def tombstone(self, *parts: str) -> str:
        """Return the keyed hash by which something erased is recognised, in hexadecimal."""
        return hmac.new(self.secret, json.dumps(parts).encode(), hashlib.sha256).hexdigest()


@dataclass(slots=True)
class FragmentSet:
    """Hashes of windows, of tokens and of names; `too_short` counts the texts that are too short for a token."""

    wide: Hashes = field(default_factory=lambda: _NONE)
    narrow: Hashes = field(default_factory=lambda: _NONE)
    names: Hashes = field(default_factory=lambda: _NONE)
    too_short: int = 0
    tokens: Hashes = field(default_factory=lambda: _NONE)

    def __len__(self) -> int:
        """Return how many windows and tokens there are."""
        return len(self.wide) + len(self.narrow) + len(self.tokens)

    def add(self, other: FragmentSet) -> None:
        """Add the hashes of another set."""
        self.wide = np.union1d(self.wide, other.wide)
        self.narrow = np.union1d(self.narrow, other.narrow)
        self.names = np.union1d(self.names, other.names)
        self.tokens = np.union1d(self.tokens, other.tokens)
        self.too_short += other.too_short

    def without(self, other: FragmentSet) -> FragmentSet:
        """Return the set without the windows and tokens of another."""
        return FragmentSet(
            np.setdiff1d(self.wide, other.wide),
            np.setdiff1d(self.narrow, other.narrow),
            self.names,
            self.too_short,
            np.setdiff1d(self.tokens, other.tokens),
        )

    def without_tokens(self) -> FragmentSet:
        """Return the set without its tokens, which are so short that other people's texts may have the same ones."""
        return FragmentSet(self.wide, self.narrow, self.names, self.too_short)

    def dump(self) -> dict[str, bytes]:
        """Return the hashes by kind, as they are stored."""
        return {name: getattr(self, name).astype("<u8").tobytes() for name in ("wide", "narrow", "names", "tokens")} | {
            "too_short": self.too_short.to_bytes(8, "little") if self.too_short else b""
        }

    @classmethod
    def load(cls, stored: Iterable[tuple[str, bytes]]) -> FragmentSet:
        """Return the set of what `dump` returned, in any number of parts."""
        parts: dict[str, list[Hashes]] = {name: [] for name in ("wide", "narrow", "names", "tokens", "too_short")}
        for kind, raw in stored:
            parts[kind].append(np.frombuffer(raw, "<u8").astype(np.uint64))
        merged = {kind: np.unique(np.concatenate(found)) if found else _NONE for kind, found in parts.items()}
        too_short = int(np.concatenate(parts["too_short"]).sum()) if parts["too_short"] else 0
        return cls(merged["wide"], merged["narrow"], merged["names"], too_short, merged["tokens"])


class Matcher:
    """Finds the windows of a set in bytes."""

    def __init__(self, key: HashKey, fragments: FragmentSet) -> None:
        self._key = key
        self._wide = _Members(fragments.wide)
        self._narrow = _Members(fragments.narrow)
        self._tokens = _Members(fragments.tokens)

    def found_in(self, data: bytes) -> FragmentSet:
        """Return those windows and tokens of the set that the bytes contain."""
        found = FragmentSet()
        if len(self._tokens) and len(data) >= SHORTEST:
            found.tokens = self._tokens.among_all(self._key.tokens(data))
        if len(data) >= NARROW:
            wide, narrow = self._key.windows(data)
            found.wide, found.narrow = self._wide.among(wide), self._narrow.among(narrow)
        return found

    def tokens_within(self, data: bytes) -> FragmentSet:
        """Return those tokens of the set that the bytes contain, even as a part of a longer word."""
        if not len(self._tokens) or len(data) < SHORTEST:
            return FragmentSet()
        return FragmentSet(tokens=self._tokens.among_all(self._key.tokens(data, within_words=True)))

    def is_in(self, data: bytes) -> bool:
        """Return whether the bytes contain any window or token of the set."""
        return len(self.found_in(data)) > 0


class _Members:
    """A set of hashes with a table of bits, which rules out most windows of a file at one look."""

    def __init__(self, hashes: Hashes) -> None:
        self._hashes = np.unique(hashes)
        bits = max(_FILTER_BITS, len(self._hashes).bit_length() + _BITS_OF_A_PLACE)
        self._shift = np.uint64(64 - bits)
        self._filter = np.zeros(1 << bits, np.bool_)
        self._filter[self._hashes >> self._shift] = True

    def __len__(self) -> int:
        """Return how many hashes there are."""
        return len(self._hashes)

    def among(self, windows: Hashes) -> Hashes:
        """Return the members of the set that are among these hashes."""
        if not len(self._hashes) or not len(windows):
            return _NONE
        likely = np.unique(windows[self._filter[windows >> self._shift]])
        # Not `np.intersect1d`, which sorts all members again for each record of work that is looked at.
        places = np.searchsorted(self._hashes[:-1], likely)
        found: Hashes = likely[self._hashes[places] == likely]
        return found

    def among_all(self, parts: Iterable[Hashes]) -> Hashes:
        """Return the members of the set that are in any of these arrays. Only one array is in memory at a time."""
        return np.unique(np.concatenate([_NONE, *map(self.among, parts)]))


def fragments_of(
    key: HashKey, texts: Iterable[str], *, raw: Iterable[bytes] = (), names: Iterable[str] = ()
) -> FragmentSet:
    """Return the fragments of texts in all their forms, of raw bytes (vectors) as they are, and the hashes of names."""
    result = FragmentSet()
    sized = ((form, len(form)) for form in _all_forms(key, texts, raw, result))
    parts = [_hash_batch(key, batch) for batch in in_parts(sized, size=_BATCH_BYTES)]
    result.wide = np.unique(np.concatenate([_NONE, *(part.wide for part in parts)]))
    result.narrow = np.unique(np.concatenate([_NONE, *(part.narrow for part in parts)]))
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


def _all_forms(key: HashKey, texts: Iterable[str], raw: Iterable[bytes], result: FragmentSet) -> Iterator[bytes]:
    tokens: dict[str, Hashes] = {}
    for text in texts:
        if _TIME.fullmatch(text):
            result.too_short += 1
            continue
        if len(text.encode("utf-8", "surrogatepass")) < NARROW:
            token = tokens[text] = tokens[text] if text in tokens else key.token(text)
            result.too_short += not len(token)
        yield from forms_of(text)
    yield from raw
    result.tokens = np.unique(np.concatenate([result.tokens, *tokens.values()]))


def forms_of(text: str) -> Iterator[bytes]:
    """Yield the forms of a text: plain, JSON-escaped in two ways, base64 at three alignments, UTF-16 in both orders."""
    plain = text.encode("utf-8", "surrogatepass")
    yield plain
    escaped = {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]} - {text}
    yield from (form.encode("utf-8", "surrogatepass") for form in escaped)
    for shift in range(3):
        encoded = base64.b64encode(b"\0" * shift + plain)
        # Left out are the characters that depend on the bytes before and after the text.
        first, spare = (0, 2, 3)[shift], (len(plain) + shift) % 3
        yield encoded[first : len(encoded) - 4 if spare else len(encoded)]
    yield text.encode("utf-16-le", "surrogatepass")
    yield text.encode("utf-16-be", "surrogatepass")


def _hash_batch(key: HashKey, forms: list[bytes]) -> FragmentSet:
    """Return the windows of forms, by one hash pass over all of them."""
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
    return FragmentSet(_varied(wide, array, starts[WIDE], WIDE), _varied(narrow, array, starts[NARROW], NARROW))


def _varied(hashes: Hashes, data: NDArray[np.uint8], starts: list[NDArray[np.int64]], width: int) -> Hashes:
    """Return the hashes at these positions, without the windows that have too few different bytes."""
    if not starts:
        return _NONE
    positions = np.concatenate(starts)
    ordered = np.sort(np.lib.stride_tricks.sliding_window_view(data, width)[positions], axis=1)
    different = (ordered[:, 1:] != ordered[:, :-1]).sum(axis=1) + 1
    return np.unique(hashes[positions[different >= _LEAST_DIFFERENT]])
