"""Summarise a conversation with its own sentences, deterministically and without a language model.

Sentences are ranked by how informative they are, how central among the others, and the importance of their message.
They are quoted verbatim and in order, each with its date and speaker. Every stretch of the conversation gets its share
of the tokens, and near-repetitions are left out.
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

from adapters.tokens import TokenCounter, truncate
from memory.sessions.passages import Passage
from storage.recall.words import STOP_WORDS, hash_of, words_of
from storage.sessions.summary_text import Line

Floats = NDArray[np.float32]

# Passages compared with each other at once: 300 take 20 ms.
GROUP_SIZE: Final = 300
# Of more passages, each group keeps this many times its share of the tokens, and never less than a few lines.
_GROUP_KEEPS: Final = 4
_MIN_GROUP_TOKENS: Final = 120
# If a round keeps more than this share, because there is much room, passages are thinned out evenly.
_MAX_KEPT_SHARE: Final = 0.8
# A sentence with this many meaningful words counts as complete.
_FULL_WORDS: Final = 7
# A sentence this similar to a selected one repeats it.
_REPEATED_SIMILARITY: Final = 0.8
# The share of information in the ranking; the rest is centrality.
_INFORMATION_SHARE: Final = 0.6
# The penalty for similarity to the most similar selected sentence (Carbonell and Goldstein 1998, MMR).
_SIMILARITY_PENALTY: Final = 0.3
# The least weight of a message: unimportant messages may be all there is.
_MIN_WEIGHT: Final = 0.05
# A sentence that fills the last tokens has at least this share of the best score.
_MIN_SCORE_SHARE: Final = 0.3
# Factors for less informative sentences: bare questions; praise and wishes for the other; hopes and assurances.
_QUESTION: Final = 0.25
_PRAISE_FACTOR: Final = 0.4
_ASSURANCE_FACTOR: Final = 0.6
# Information of a plain sentence, and the bonus for each of: a time or number, a name, something the speaker did.
_PLAIN_INFORMATION: Final = 0.4
_INFORMATION_BONUS: Final = 0.3
_TIMES = re.compile(
    r"\d|\b(?:yesterday|today|tonight|tomorrow|recently|ago|since|(?:last|next|this|every|past|few) (?:night|morning"
    r"|day|week|weekend|month|year|summer|winter|spring|fall|autumn|\w+day)s?|january|february|march|april|june|july"
    r"|august|september|october|november|december)\b",
    re.IGNORECASE,
)
_NAMES = re.compile(r"(?<=[\w,;:] )[A-Z][\w'-]+")
_FIRST_PERSON = re.compile(r"\b(?:I|my|we|our|us|me|mine)\b")
_EVENT = re.compile(
    r"\b(?:I|we|my \w+)(?:'m|'ve|'d|'re| am| are| have| had| was| were)? (?:\w+ly |just |also |never |always )?"
    r"(?:\w{2,}ed|\w{3,}ing|been|went|got|gotten|made|took|taken|bought|had|found|met|began|saw|seen|gave|given|did"
    r"|done|told|won|lost|built|wrote|written|read|left|moved|live|work|own|have|need|prefer|plan|want)\b"
)
_STATE = re.compile(
    r"\b(?:I'm|I am|I was|we're|we are|my \w+ (?:is|are|was))"
    r" (?:an?|the|in|at|on|from|not|born|allergic|vegan|vegetarian|married|single|retired|afraid)\b",
    re.IGNORECASE,
)
_PRAISE = re.compile(r"\b(?:you|your|yours|thanks?|congrats|congratulations|wow|kudos)\b", re.IGNORECASE)
_ASSURANCES = re.compile(
    r"\b(?:I'm (?:sure|so|really|glad|happy|excited|proud|determined|(?:staying|trying to stay) positive"
    r"|not (?:gonna|going to) give up)|I(?:'ll)? (?:hope|bet|know|agree|guess|appreciate|love)|can't wait"
    r"|(?:sounds|looks) (?:like|great|good)|let's|keep (?:it|up|going)|way to go|good luck)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _Ranked:
    """Passages with the score and tokens of each, and their pairwise similarity."""

    passages: Sequence[Passage]
    scores: Floats
    tokens: list[int]
    similarity: Floats


def select_lines(passages: Sequence[Passage], limit_tokens: int, counter: TokenCounter) -> list[Line]:
    """Return the most informative lines of these passages in at most `limit_tokens`, in their order.

    Returns at least one line if there are passages; if not even the shortest fits, it is cut. The result is
    deterministic. Very many passages are first reduced in groups, each with its share, so that no part is ignored.
    """
    left = list(passages)
    while len(left) > GROUP_SIZE:
        groups = [left[start : start + GROUP_SIZE] for start in range(0, len(left), GROUP_SIZE)]
        group_tokens = max(_MIN_GROUP_TOKENS, _GROUP_KEEPS * limit_tokens // len(groups))
        reduced = [passage for group in groups for passage in _select(group, group_tokens, counter)]
        if len(reduced) > _MAX_KEPT_SHARE * len(left):
            reduced = reduced[:: len(reduced) // GROUP_SIZE + 1]
        left = reduced
    selected = [passage.line for passage in _select(left, limit_tokens, counter)]
    if selected or not left:
        return selected
    best = max(left, key=lambda passage: (passage.importance, len(passage.text))).line
    (frame,) = counter.count([str(replace(best, text=""))])
    return [replace(best, text=truncate(best.text, limit_tokens - frame, counter))]


def _select(passages: Sequence[Passage], limit_tokens: int, counter: TokenCounter) -> list[Passage]:
    """Return the best passages within `limit_tokens`. Time and memory grow with the square of their number."""
    if not passages:
        return []
    ranked = _rank(passages, counter)
    selected = _select_per_stretch(ranked, limit_tokens)
    room = limit_tokens - sum(ranked.tokens[position] for position in selected)
    _fill(ranked, range(len(passages)), room, selected)
    return [passages[position] for position in sorted(selected)]


def _select_per_stretch(ranked: _Ranked, limit_tokens: int) -> list[int]:
    """Return the best of each stretch within its share; a share too small for a line is added to the next one."""
    stretches: dict[int, list[int]] = {}
    for position, passage in enumerate(ranked.passages):
        stretches.setdefault(passage.stretch, []).append(position)
    weights = [
        math.sqrt(sum(len(ranked.passages[position].text) for position in positions))
        for positions in stretches.values()
    ]
    selected: list[int] = []
    allowed, used = 0.0, 0
    for positions, weight in zip(stretches.values(), weights, strict=True):
        allowed += limit_tokens * weight / sum(weights)
        before = len(selected)
        _fill(ranked, positions, int(allowed - used), selected)
        used += sum(ranked.tokens[position] for position in selected[before:])
    return selected


def _fill(ranked: _Ranked, positions: Sequence[int], room: int, selected: list[int]) -> None:
    """Add the best of these positions to `selected` one by one while they fit, each compared with those before it."""
    known = set(selected)
    candidates = [position for position in positions if position not in known]
    min_score = _MIN_SCORE_SHARE * float(ranked.scores.max())
    while candidates:
        fitting = [position for position in candidates if ranked.tokens[position] <= room]
        if not fitting:
            return
        nearest = (
            ranked.similarity[np.ix_(fitting, selected)].max(axis=1) if selected else np.zeros(len(fitting), np.float32)
        )
        value = np.where(
            (nearest > _REPEATED_SIMILARITY) | (ranked.scores[fitting] < min_score),
            -1.0,
            ranked.scores[fitting] - _SIMILARITY_PENALTY * nearest * ranked.scores[fitting],
        )
        best = int(np.argmax(value))
        if value[best] <= 0:
            return
        selected.append(fitting[best])
        candidates = [position for position in fitting if position != fitting[best]]
        room -= ranked.tokens[fitting[best]]


def _rank(passages: Sequence[Passage], counter: TokenCounter) -> _Ranked:
    words = [_meaningful_words(passage.text) for passage in passages]
    similarity = _word_similarity(words)
    central = _centrality(similarity)
    vectors = _vectors(passages)
    if vectors is not None:
        central = (central + _centrality(np.clip(vectors @ vectors.T, 0, 1))) / np.float32(2)
    information = np.array(
        [_information(passage, found) for passage, found in zip(passages, words, strict=True)], np.float32
    )
    weight = np.array([max(_MIN_WEIGHT, passage.importance) for passage in passages], np.float32)
    scores = weight * information * (_INFORMATION_SHARE + (1 - _INFORMATION_SHARE) * central)
    tokens = [count + 1 for count in counter.count([str(passage.line) for passage in passages])]
    return _Ranked(passages, scores.astype(np.float32), tokens, similarity)


def _meaningful_words(text: str) -> list[str]:
    return [word for word in words_of(text) if len(word) > 1 and word not in STOP_WORDS]


def _information(passage: Passage, words: Sequence[str]) -> float:
    """Return how informative a sentence is by itself: its meaningful words, times, names, and what the speaker did."""
    text = passage.text
    own = bool(_FIRST_PERSON.search(text))
    names = [name for name in _NAMES.findall(text) if name not in passage.known]
    bonuses = sum(map(bool, (_TIMES.search(text), names, _EVENT.search(text) or _STATE.search(text))))
    information = min(1.0, (len(set(words)) + 0.5) / _FULL_WORDS) * (_PLAIN_INFORMATION + _INFORMATION_BONUS * bonuses)
    if _ASSURANCES.search(text):
        information *= _ASSURANCE_FACTOR
    if passage.is_question:
        return information * _QUESTION
    return information * _PRAISE_FACTOR if _PRAISE.search(text) and not own else information


def _word_similarity(words: Sequence[Sequence[str]]) -> Floats:
    """Return the similarity of sentences by their words: the cosine of weights in which rare words count more."""
    counts = [Counter(hash_of(word) for word in found) for found in words]
    holders = Counter(key for count in counts for key in count)
    columns = {key: position for position, key in enumerate(holders)}
    matrix = np.zeros((len(words), max(1, len(columns))), np.float32)
    for row, count in enumerate(counts):
        for key, times in count.items():
            matrix[row, columns[key]] = (1 + math.log(times)) * math.log(1 + len(words) / holders[key])
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    unit = np.divide(matrix, lengths, out=matrix, where=lengths > 0)
    similarity: Floats = np.clip(unit @ unit.T, 0, 1)
    return similarity


def _centrality(similarity: Floats) -> Floats:
    """Return each sentence's mean similarity to the others (LexRank's degree, without a threshold), scaled to 1."""
    degree: Floats = (similarity.sum(axis=1) - similarity.diagonal()) / np.float32(max(1, len(similarity) - 1))
    highest = float(degree.max(initial=0.0))
    return degree / highest if highest > 0 else np.zeros_like(degree)


def _vectors(passages: Sequence[Passage]) -> Floats | None:
    """Return the unit vectors of the passages as a matrix; None if any has none, or their lengths differ."""
    vectors = [passage.vector for passage in passages if passage.vector is not None]
    if len(vectors) < len(passages) or len({len(vector) for vector in vectors}) != 1:
        return None
    return np.stack(vectors).astype(np.float32)
