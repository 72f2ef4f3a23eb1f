"""How many tokens texts have, by the tokenizer of the embedding model where its files are on this machine.

Counts are of whole texts: no truncation, no padding, no markers at the ends. Neither torch nor a network is needed;
a model without a tokenizer here (an endpoint, the hash embedder) is counted by an estimate.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from adapters.embedders.base import Provider
from adapters.embedders.model2vec import ALIASES
from adapters.embedders.model_files import find_tokenizer

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

# OpenAI's rule of thumb for English; in bytes rather than characters, so that Chinese is not taken for a quarter of it.
BYTES_A_TOKEN: Final = 4
ELLIPSIS: Final = "…"
# A long text is counted in pieces of about this many characters, and only as far as the limit reaches.
_PIECE_CHARACTERS: Final = 16_384
# What is longer than this is no word, and is cut anywhere.
_WORD_CHARACTERS: Final = 256
_BLANK = re.compile(r"\s")
_WORD = re.compile(r"\s*\S+")


class TokenCounter(Protocol):
    """Counts tokens. Safe to use from several threads."""

    @property
    def name(self) -> str:
        """What it counts by: a model's name, or "estimate"."""

    def count(self, texts: Sequence[str]) -> list[int]:
        """The tokens of each text."""


class EstimatedTokens:
    """A token for every 4 bytes of UTF-8, rounded up: for models whose tokenizer is not on this machine."""

    name: Final = "estimate"

    def count(self, texts: Sequence[str]) -> list[int]:
        """The estimate for each text."""
        return [_estimate(text) for text in texts]


class ModelTokens:
    """Counts by a `tokenizer.json`, read with the first call: 100,000 tokens take 0.06 s as chat turns.

    A word that the vocabulary does not hold is one token to the model, a megabyte without blanks included. Here it
    counts a token for every 4 of its bytes: the counts are to keep a text within the window of a language model.
    Where the file cannot be read, everything is estimated.
    """

    def __init__(self, name: str, file: Path) -> None:
        self.name = name
        self._file = file
        self._tokenizer: Tokenizer | None = None
        self._unknown: int | None = None
        self._unreadable = False
        self._loading = threading.Lock()

    def count(self, texts: Sequence[str]) -> list[int]:
        """The tokens of each text."""
        tokenizer = self._loaded()
        if tokenizer is None:
            return [_estimate(text) for text in texts]
        clean = [_without_surrogates(text) for text in texts]
        found = tokenizer.encode_batch_fast(clean, add_special_tokens=False)
        return [self._tokens(tokenizer, text, encoding) for text, encoding in zip(clean, found, strict=True)]

    def _tokens(self, tokenizer: Tokenizer, text: str, encoding: Encoding) -> int:
        ids = encoding.ids
        if self._unknown is None or self._unknown not in ids:
            return len(ids)
        # The fast encoding does not say where in the text a token stands.
        places = tokenizer.encode(text, add_special_tokens=False)
        unknown = [place for place, token in zip(places.offsets, places.ids, strict=True) if token == self._unknown]
        return len(ids) - len(unknown) + sum(max(1, _estimate(text[start:end])) for start, end in unknown)

    def _loaded(self) -> Tokenizer | None:
        with self._loading:
            if self._tokenizer is None and not self._unreadable:
                self._open()
            return self._tokenizer

    def _open(self) -> None:
        from tokenizers import Tokenizer

        try:
            tokenizer = Tokenizer.from_file(str(self._file))
        # The library raises bare Exception for a damaged file. Counting is never a reason to have no answer: from here
        # on it is an estimate, and `name` says so.
        except Exception:  # noqa: BLE001
            self._unreadable = True
            self.name = EstimatedTokens.name
            return
        tokenizer.no_padding()
        tokenizer.no_truncation()
        unknown = getattr(tokenizer.model, "unk_token", None)
        self._unknown = tokenizer.token_to_id(unknown) if isinstance(unknown, str) else None
        self._tokenizer = tokenizer


def build_token_counter(provider: Provider, model: str) -> TokenCounter:
    """The counter for an embedding model: its own tokenizer where it is on this machine, else the estimate."""
    if provider not in ("sentence-transformers", "model2vec"):
        return EstimatedTokens()
    name = ALIASES.get(model, model)
    file = find_tokenizer(name)
    return EstimatedTokens() if file is None else ModelTokens(name, file)


def cut(text: str, limit: int, counter: TokenCounter) -> str:
    """The beginning of a text that has at most `limit` tokens, its mark of omission included; the text where it fits.

    Cut at the end of a word where there is one, within a word where one alone is too long. What lies far behind the
    limit is not looked at. A limit below the mark's own tokens gives the mark alone.
    """
    kept: list[tuple[str, int]] = []
    used = 0
    for piece in _pieces(text):
        (tokens,) = counter.count([piece])
        kept.append((piece, tokens))
        used += tokens
        if used > limit:
            return _shortened(kept, limit - counter.count([ELLIPSIS])[0], counter)
    return text


def newest_lines(text: str, limit: int, counter: TokenCounter) -> str:
    """As many of the last lines of a text as have at most `limit` tokens; the last one cut where not even it fits."""
    lines = text.splitlines()
    costs = counter.count([f"{line}\n" for line in lines])
    first, room = len(lines), limit
    while first and costs[first - 1] <= room:
        first -= 1
        room -= costs[first]
    while first < len(lines) and counter.count(["\n".join(lines[first:])])[0] > limit:
        first += 1  # a tokenizer may give a whole more tokens than its parts have
    return "\n".join(lines[first:]) if first < len(lines) or not lines else cut(lines[-1], limit, counter)


def _pieces(text: str) -> Iterator[str]:
    """A text in pieces that end at a blank where there is one near: their tokens add up to those of the whole."""
    start = 0
    while start < len(text):
        end = start + _PIECE_CHARACTERS
        if end < len(text):
            blank = _BLANK.search(text, end, end + _WORD_CHARACTERS)
            end = blank.start() if blank else end
        yield text[start:end]
        start = end


def _shortened(kept: list[tuple[str, int]], room: int, counter: TokenCounter) -> str:
    """As much of these pieces as fits into `room`, with the mark."""
    used = sum(tokens for _, tokens in kept)
    last = ""
    while kept and used > room:
        last, tokens = kept.pop()
        used -= tokens
    ends = [found.end() for found in _WORD.finditer(last)]
    best = _longest(last, ends, room - used, counter)
    if best == 0 and not kept:
        best = _longest(last, range(1, min(len(last), _WORD_CHARACTERS * max(room, 0)) + 1), room, counter)
    return ("".join(piece for piece, _ in kept) + last[:best]).rstrip() + ELLIPSIS


def _longest(text: str, ends: Sequence[int], room: int, counter: TokenCounter) -> int:
    """The last of these ends up to which a text fits; 0 where not even the first does."""
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high) // 2
        if counter.count([text[: ends[middle]]])[0] <= room:
            low = middle + 1
        else:
            high = middle
    return ends[low - 1] if low else 0


def _estimate(text: str) -> int:
    return -(-len(text.encode("utf-8", "replace")) // BYTES_A_TOKEN)


def _without_surrogates(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text
