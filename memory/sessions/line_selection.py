"""A conversation in few sentences, its own, without a language model: the deterministic way to a summary (B12).

Sentences are ranked by how much they tell, how central they are among the others, and the importance of their
message. They are taken verbatim, in their order, each with its date and speaker; every stretch of the conversation has
its share of the room, and nothing is said twice.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from adapters.tokens import TokenCounter, cut
from memory.memories.stop_words import STOP_WORDS
from memory.sessions.passages import Passage
from storage.recall.words import hash_of, words_of
from storage.sessions.summary_text import Line

Floats = NDArray[np.float32]

# Passages that are compared with each other: 300 take 20 ms.
AT_ONCE: Final = 300
# Of more, each group keeps so many times its share of the room, and never less than a few lines.
_ROUNDS_KEEP: Final = 4
_FEWEST_TOKENS: Final = 120
# Where a round keeps nearly everything, for the room is large, it would never end.
_LEAST_PROGRESS: Final = 0.8
# So many words that tell something make a full sentence.
_FULL_WORDS: Final = 7
# What is so near to a sentence that was taken says it again.
_SAME: Final = 0.8
# The share of the ranking that is told; the rest is centrality.
_TOLD: Final = 0.6
# How much a sentence loses by what is most like it among those taken (Carbonell and Goldstein 1998, MMR).
_NOVELTY: Final = 0.3
# What nobody thought important may be all there is.
_LEAST_WEIGHT: Final = 0.05
# What fills the last of the room is worth at least this share of the best.
_LEAST_WORTH: Final = 0.3
# By how much a sentence tells less: a bare question; praise, and wishes for the other; hopes and assurances.
_QUESTION: Final = 0.25
_TO_THE_OTHER: Final = 0.4
_ASSURANCE: Final = 0.6
# And by how much more for each: a time or number, a name, something that the speaker did.
_MORE: Final = 0.3
_PLAIN: Final = 0.4
_TIMES = re.compile(
    r"\d|\b(?:yesterday|today|tonight|tomorrow|recently|ago|since|(?:last|next|this|every|past|few) (?:night|morning"
    r"|day|week|weekend|month|year|summer|winter|spring|fall|autumn|\w+day)s?|january|february|march|april|june|july"
    r"|august|september|october|november|december)\b",
    re.IGNORECASE,
)
_NAMES = re.compile(r"(?<=[\w,;:] )[A-Z][\w'-]+")
_OWN = re.compile(r"\b(?:I|my|we|our|us|me|mine)\b")
_DID = re.compile(
    r"\b(?:I|we|my \w+)(?:'m|'ve|'d|'re| am| are| have| had| was| were)? (?:\w+ly |just |also |never |always )?"
    r"(?:\w{2,}ed|\w{3,}ing|been|went|got|gotten|made|took|taken|bought|had|found|met|began|saw|seen|gave|given|did"
    r"|done|told|won|lost|built|wrote|written|read|left|moved|live|work|own|have|need|prefer|plan|want)\b"
)
_IS = re.compile(
    r"\b(?:I'm|I am|I was|we're|we are|my \w+ (?:is|are|was))"
    r" (?:an?|the|in|at|on|from|not|born|allergic|vegan|vegetarian|married|single|retired|afraid)\b",
    re.IGNORECASE,
)
_THE_OTHERS = re.compile(r"\b(?:you|your|yours|thanks?|congrats|congratulations|wow|kudos)\b", re.IGNORECASE)
_ASSURANCES = re.compile(
    r"\b(?:I'm (?:sure|so|really|glad|happy|excited|proud|determined|(?:staying|trying to stay) positive"
    r"|not (?:gonna|going to) give up)|I(?:'ll)? (?:hope|bet|know|agree|guess|appreciate|love)|can't wait"
    r"|(?:sounds|looks) (?:like|great|good)|let's|keep (?:it|up|going)|way to go|good luck)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _Ranked:
    """Passages with what each is worth, what it costs, and how alike they are."""

    passages: Sequence[Passage]
    worth: Floats
    costs: list[int]
    alike: Floats


def extract(passages: Sequence[Passage], limit_tokens: int, counter: TokenCounter) -> list[Line]:
    """The lines that tell most of these passages within so many tokens, in their order.

    One at least, cut where not even the shortest fits; none where there are no passages. The same passages give the
    same lines. Very many are thinned out in groups first, each with its share, so that none is left unread.
    """
    left = list(passages)
    while len(left) > AT_ONCE:
        groups = [left[start : start + AT_ONCE] for start in range(0, len(left), AT_ONCE)]
        share = max(_FEWEST_TOKENS, _ROUNDS_KEEP * limit_tokens // len(groups))
        kept = [passage for group in groups for passage in _chosen(group, share, counter)]
        if len(kept) > _LEAST_PROGRESS * len(left):
            kept = kept[:: len(kept) // AT_ONCE + 1]
        left = kept
    chosen = [passage.line for passage in _chosen(left, limit_tokens, counter)]
    if chosen or not left:
        return chosen
    best = max(left, key=lambda passage: (passage.importance, len(passage.text))).line
    (frame,) = counter.count([str(replace(best, text=""))])
    return [replace(best, text=cut(best.text, limit_tokens - frame, counter))]


def _chosen(passages: Sequence[Passage], limit_tokens: int, counter: TokenCounter) -> list[Passage]:
    """The passages that tell most within so many tokens. Time and memory go with the square of their number."""
    if not passages:
        return []
    ranked = _ranked(passages, counter)
    taken = _shared_out(ranked, limit_tokens)
    _fill(ranked, range(len(passages)), limit_tokens - sum(ranked.costs[place] for place in taken), taken)
    return [passages[place] for place in sorted(taken)]


def _shared_out(ranked: _Ranked, limit_tokens: int) -> list[int]:
    """The best of each stretch, each within its share; a share too small for a line adds to the next one's."""
    stretches = _stretches(ranked.passages)
    sizes = [math.sqrt(sum(len(ranked.passages[place].text) for place in places)) for places in stretches]
    taken: list[int] = []
    allowed, spent = 0.0, 0
    for places, size in zip(stretches, sizes, strict=True):
        allowed += limit_tokens * size / sum(sizes)
        before = len(taken)
        _fill(ranked, places, int(allowed - spent), taken)
        spent += sum(ranked.costs[place] for place in taken[before:])
    return taken


def _stretches(passages: Sequence[Passage]) -> list[list[int]]:
    found: dict[int, list[int]] = {}
    for place, passage in enumerate(passages):
        found.setdefault(passage.stretch, []).append(place)
    return list(found.values())


def _fill(ranked: _Ranked, places: Sequence[int], room: int, taken: list[int]) -> None:
    """Take the best of these places one by one while they fit, each judged by what was taken before it."""
    known = set(taken)
    open_places = [place for place in places if place not in known]
    least = _LEAST_WORTH * float(ranked.worth.max())
    while open_places:
        fitting = [place for place in open_places if ranked.costs[place] <= room]
        if not fitting:
            return
        echo = ranked.alike[np.ix_(fitting, taken)].max(axis=1) if taken else np.zeros(len(fitting), np.float32)
        value = np.where(
            (echo > _SAME) | (ranked.worth[fitting] < least),
            -1.0,
            ranked.worth[fitting] - _NOVELTY * echo * ranked.worth[fitting],
        )
        best = int(np.argmax(value))
        if value[best] <= 0:
            return
        taken.append(fitting[best])
        open_places = [place for place in fitting if place != fitting[best]]
        room -= ranked.costs[fitting[best]]


def _ranked(passages: Sequence[Passage], counter: TokenCounter) -> _Ranked:
    words = [_telling(passage.text) for passage in passages]
    alike = _by_words(words)
    central = _centrality(alike)
    vectors = _matrix(passages)
    if vectors is not None:
        meant = np.clip(vectors @ vectors.T, 0, 1)
        central = (central + _centrality(meant)) / np.float32(2)
    told = np.array([_told(passage, found) for passage, found in zip(passages, words, strict=True)], np.float32)
    weight = np.array([max(_LEAST_WEIGHT, passage.importance) for passage in passages], np.float32)
    worth = (weight * told * (_TOLD + (1 - _TOLD) * central)).astype(np.float32)
    costs = [tokens + 1 for tokens in counter.count([str(passage.line) for passage in passages])]
    return _Ranked(passages, worth, costs, alike)


def _telling(text: str) -> list[str]:
    """The words of a text that say what it is about."""
    return [word for word in words_of(text) if len(word) > 1 and word not in STOP_WORDS]


def _told(passage: Passage, words: Sequence[str]) -> float:
    """How much a sentence tells by itself: how many words do, when and who, and what the speaker did."""
    text = passage.text
    own = bool(_OWN.search(text))
    names = [name for name in _NAMES.findall(text) if name not in passage.known]
    more = sum(map(bool, (_TIMES.search(text), names, _DID.search(text) or _IS.search(text))))
    told = min(1.0, (len(set(words)) + 0.5) / _FULL_WORDS) * (_PLAIN + _MORE * more)
    if _ASSURANCES.search(text):
        told *= _ASSURANCE
    if passage.asks:
        return told * _QUESTION
    return told * _TO_THE_OTHER if _THE_OTHERS.search(text) and not own else told


def _by_words(words: Sequence[Sequence[str]]) -> Floats:
    """How alike sentences are by their words: the cosine of their weights, a rare word weighing more."""
    counts = [Counter(hash_of(word) for word in found) for found in words]
    holders = Counter(key for count in counts for key in count)
    columns = {key: place for place, key in enumerate(holders)}
    matrix = np.zeros((len(words), max(1, len(columns))), np.float32)
    for row, count in enumerate(counts):
        for key, times in count.items():
            matrix[row, columns[key]] = (1 + math.log(times)) * math.log(1 + len(words) / holders[key])
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    unit = np.divide(matrix, lengths, out=matrix, where=lengths > 0)
    alike: Floats = np.clip(unit @ unit.T, 0, 1)
    return alike


def _centrality(alike: Floats) -> Floats:
    """How near each sentence is to all others: its mean likeness (LexRank's degree, unthresholded), the highest 1."""
    degree: Floats = (alike.sum(axis=1) - alike.diagonal()) / np.float32(max(1, len(alike) - 1))
    highest = float(degree.max(initial=0.0))
    return degree / highest if highest > 0 else np.zeros_like(degree)


def _matrix(passages: Sequence[Passage]) -> Floats | None:
    """The unit vectors of the passages, less what all have in common; None where one has none."""
    vectors = [passage.vector for passage in passages if passage.vector is not None]
    if len(vectors) < len(passages) or len({len(vector) for vector in vectors}) != 1:
        return None
    return np.stack(vectors).astype(np.float32)
