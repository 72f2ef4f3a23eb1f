"""Count the tokens of texts with the tokenizer of the embedding model, if its files are on this machine.

Counts are of whole texts, without truncation, padding and special tokens. Neither torch nor a network is needed; for a
model without a local tokenizer (an endpoint, the hash embedder) counts are estimated.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from adapters.embedders.base import MULTILINGUAL_NAMES, Provider
from adapters.embedders.local import ALIASES
from adapters.embedders.model_files import find_tokenizer

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer


# OpenAI's rule of thumb for English, in bytes rather than characters, so that Chinese is not underestimated.
BYTES_PER_TOKEN: Final = 4
ELLIPSIS: Final = "…"
# A long text is counted in pieces of about this many characters, only up to the limit.
_PIECE_CHARACTERS: Final = 16_384
# A longer run without blanks is not a word, and is cut anywhere.
_WORD_CHARACTERS: Final = 256
_BLANK = re.compile(r"\s")
_WORD = re.compile(r"\S+")


class TokenCounter(Protocol):
    """Counts tokens. Safe to use from several threads."""

    @property
    def name(self) -> str:
        """The name of the model whose tokenizer is used, or "estimate"."""

    @property
    def lines_add_up(self) -> bool:
        """Whether a text has as many tokens as its lines together."""

    def count(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""


class EstimatedTokens:
    """One token per 4 bytes of UTF-8, rounded up: for models whose tokenizer is not on this machine."""

    name: Final = "estimate"
    lines_add_up: Final = False  # each line is rounded up

    def count(self, texts: Sequence[str]) -> list[int]:
        """Return the estimate for each text."""
        return [_estimate(text) for text in texts]


class ModelTokens:
    """Counts with a `tokenizer.json`, read by the first call: 100,000 tokens of chat turns take 0.06 s.

    To the model a word that is not in its vocabulary is one token, even a megabyte without blanks. Here it counts one
    token per 4 bytes, because the counts limit texts for the window of a language model. If the file cannot be read,
    all counts are estimated.
    """

    def __init__(self, name: str, file: Path) -> None:
        self.name = name
        self._file = file
        self._tokenizer: Tokenizer | None = None
        self._unknown: int | None = None
        self._unreadable = False
        self._loading = threading.Lock()

    @property
    def lines_add_up(self) -> bool:
        """Whether a text has as many tokens as its lines together: BERT's tokenizers drop blanks and split at them."""
        tokenizer = self._loaded()
        return tokenizer is not None and type(tokenizer.pre_tokenizer).__name__ == "BertPreTokenizer"

    def count(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
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
        # Encoded again, because the fast encoding does not have the positions of tokens in the text.
        encoded = tokenizer.encode(text, add_special_tokens=False)
        unknown = [span for span, token in zip(encoded.offsets, encoded.ids, strict=True) if token == self._unknown]
        return len(ids) - len(unknown) + sum(max(1, _estimate(text[start:end])) for start, end in unknown)

    def _loaded(self) -> Tokenizer | None:
        with self._loading:
            if self._tokenizer is None and not self._unreadable:
                self._open()
            return self._tokenizer

    def _open(self) -> None:
        from tokenizers import Tokenizer

        try:
            # `from_file` would raise a bare Exception for a missing or damaged file.
            tokenizer = Tokenizer.from_buffer(self._file.read_bytes())
        except (OSError, ValueError):
            # Counting must not fail: use estimates from now on, which `name` shows.
            self._unreadable = True
            self.name = EstimatedTokens.name
            return
        tokenizer.no_padding()
        tokenizer.no_truncation()
        unknown = getattr(tokenizer.model, "unk_token", None)
        self._unknown = tokenizer.token_to_id(unknown) if isinstance(unknown, str) else None
        self._tokenizer = tokenizer


def build_token_counter(provider: Provider, model: str) -> TokenCounter:
    """Return the counter of an embedding model: its own tokenizer if it is on this machine, else the estimate."""
    # The tokenizer of the multilingual model takes a second to load, and the estimate is as good as its counts.
    if provider not in ("sentence-transformers", "model2vec") or model in MULTILINGUAL_NAMES:
        return EstimatedTokens()
    name = ALIASES.get(model, model)
    file = find_tokenizer(name)
    return EstimatedTokens() if file is None else ModelTokens(name, file)


def truncate(text: str, limit: int, counter: TokenCounter) -> str:
    """Return the beginning of a text with at most `limit` tokens, including an ellipsis; the whole text if it fits.

    It is cut at the end of a word, or within a word that alone is too long. Text far beyond the limit is not counted. A
    limit below the tokens of the ellipsis gives only the ellipsis.
    """
    pieces: list[tuple[str, int]] = []
    used = 0
    for piece in _pieces(text):
        (tokens,) = counter.count([piece])
        pieces.append((piece, tokens))
        used += tokens
        if used > limit:
            return _truncate_pieces(pieces, limit - counter.count([ELLIPSIS])[0], counter)
    return text


def last_lines(text: str, limit: int, counter: TokenCounter) -> str:
    """Return the last lines of a text that have at most `limit` tokens; if none fits, the last one truncated."""
    lines = text.splitlines()
    costs = counter.count([f"{line}\n" for line in lines])
    first, room = len(lines), limit
    while first and costs[first - 1] <= room:
        first -= 1
        room -= costs[first]
    while first < len(lines) and counter.count(["\n".join(lines[first:])])[0] > limit:
        first += 1  # the joined lines may have more tokens than the sum of their counts
    return "\n".join(lines[first:]) if first < len(lines) or not lines else truncate(lines[-1], limit, counter)


def _pieces(text: str) -> Iterator[str]:
    """Split a text into pieces that end at a blank if one is nearby: their token counts add up to that of the text."""
    start = 0
    while start < len(text):
        end = start + _PIECE_CHARACTERS
        if end < len(text):
            blank = _BLANK.search(text, end, end + _WORD_CHARACTERS)
            end = blank.start() if blank else end
        yield text[start:end]
        start = end


def _truncate_pieces(pieces: list[tuple[str, int]], room: int, counter: TokenCounter) -> str:
    """Return as much of these pieces as fits into `room` tokens, with an ellipsis."""
    used = sum(tokens for _, tokens in pieces)
    last = ""
    while pieces and used > room:
        last, tokens = pieces.pop()
        used -= tokens
    ends = [found.end() for found in _WORD.finditer(last)]
    best = _longest(last, ends, room - used, counter)
    if best == 0 and not pieces:
        best = _longest(last, range(1, min(len(last), _WORD_CHARACTERS * max(room, 0)) + 1), room, counter)
    return ("".join(piece for piece, _ in pieces) + last[:best]).rstrip() + ELLIPSIS


def _longest(text: str, ends: Sequence[int], room: int, counter: TokenCounter) -> int:
    """Return the last of these ends up to which a text fits, 0 if not even the first does."""
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high) // 2
        if counter.count([text[: ends[middle]]])[0] <= room:
            low = middle + 1
        else:
            high = middle
    return ends[low - 1] if low else 0


def _estimate(text: str) -> int:
    return -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN)


def _without_surrogates(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


# Longer texts are rare, and would take most of the memory.
_MAX_CHARACTERS: Final = 1_024
# Longer texts, up to this size, are counted by their lines if these add up: most lines of a context are known.
_MAX_SPLIT_CHARACTERS: Final = 65_536
_MAX_TEXTS: Final = 16_384


class KeptTokenCounts:
    """Counts as `counter` does, and remembers the counts of up to 16,384 texts of at most 1,024 characters.

    Safe to use from several threads.
    """

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}

    @property
    def name(self) -> str:
        """The name of the model whose tokenizer is used, or "estimate"."""
        return self._counter.name

    @property
    def lines_add_up(self) -> bool:
        """Whether a text has as many tokens as its lines together."""
        return self._counter.lines_add_up

    def count(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
        parts = [self._parts(text) for text in texts]
        counts = self._counts_of(dict.fromkeys(chain.from_iterable(parts)))
        return [sum(counts[part] for part in of_text) for of_text in parts]

    def _parts(self, text: str) -> list[str]:
        """Return a text whole, or a long one as its lines."""
        if _MAX_CHARACTERS < len(text) <= _MAX_SPLIT_CHARACTERS and self._counter.lines_add_up:
            return text.splitlines(keepends=True)
        return [text]

    def _counts_of(self, texts: Iterable[str]) -> dict[str, int]:
        with self._lock:
            known = {text: self._counts.get(text) for text in texts}
        unknown = [text for text, count in known.items() if count is None]
        if unknown:
            counted = dict(zip(unknown, self._counter.count(unknown), strict=True))
            self._keep({text: count for text, count in counted.items() if len(text) <= _MAX_CHARACTERS})
            known |= counted
        return {text: count for text, count in known.items() if count is not None}

    def _keep(self, counts: dict[str, int]) -> None:
        with self._lock:
            self._counts |= counts
            if len(self._counts) > _MAX_TEXTS:
                # The older half: dictionaries keep the order of insertion.
                for text in list(islice(self._counts, len(self._counts) // 2)):
                    del self._counts[text]
