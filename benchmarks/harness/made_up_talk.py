"""Synthetic conversations with the statistics of real ones: words by Zipf's law, topics, near neighbours.

A topic is three things, a small vocabulary, and a centre: the embedder's own vector of a text about these things. Turns
on a topic take words from it and have vectors around its centre, so a question about its things, embedded by the same
model, has near neighbours. The noise decreases from direction to direction as in real embeddings; noise of equal
strength in 384 directions would make all neighbours equally far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Embed = Callable[[Sequence[str]], NDArray[np.float32]]

SPEAKERS: Final = ("Ana", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gita", "Hugo")
_FUNCTION_WORDS: Final = """
    the a to and we you it was for that have with about this my they so of in on at is i he she but not be are as had
    or if there what when which would will can could our your them then than just some very also after before because
    from by been has more were said into out up over
"""
_THINGS: Final = """
    garden piano bicycle bread harbour mountain doctor school kitchen violin winter summer birthday wedding holiday
    train airport passport luggage hotel beach island river lake forest bridge castle museum theatre concert guitar
    drum choir dance football tennis swimming marathon yoga chess puzzle novel poem letter newspaper camera photograph
    painting pottery knitting sewing carpentry hammer ladder roof window door furniture sofa carpet lamp candle fire
    stove oven recipe soup salad cheese chocolate coffee tea wine apple orange cherry tomato potato onion garlic pepper
    honey butter egg fish chicken lamb cow horse dog cat rabbit parrot goldfish turtle spider butterfly bee tree rose
    tulip grass mushroom seed farm tractor barn village city apartment neighbour landlord rent mortgage bank salary tax
    insurance lawyer police court election mayor university exam homework teacher student library dictionary language
    grammar history geography mathematics physics chemistry biology telescope planet moon rocket satellite computer
    keyboard printer telephone battery cable radio television film actor singer comedian circus magician clown toy doll
    kite balloon playground nursery baby grandmother uncle cousin sister brother husband friend colleague manager
    interview office meeting deadline contract project budget customer supermarket market bakery butcher pharmacy
    hospital dentist nurse surgery medicine allergy headache fever vaccine diet weight sleep dream nightmare pillow
    blanket mirror haircut shampoo perfume jewellery watch shoes jacket umbrella scarf gloves weather storm snow thunder
    rainbow earthquake volcano desert jungle ocean whale shark boat sail anchor lighthouse compass map tent campfire
    backpack fishing hunting skiing climbing motorcycle car engine tyre garage petrol traffic accident taxi bus tram
"""
_SYLLABLES: Final = "ba be bo da do du fa fi ga go ha he ka ki ko la le li lo ma me mi mo na ne ni no pa pe po ra re ri"
_VOCABULARY_WORDS: Final = 20_000
_TOPIC_THINGS: Final = 3
_TOPIC_WORDS: Final = 40
# Shares of the words of a turn: half are function words, some name the things of the topic, some more belong to its
# vocabulary, and the rest is arbitrary.
_FUNCTION_SHARE: Final = 0.5
_THING_SHARE: Final = 0.04
_TOPIC_SHARE: Final = 0.16
_SENTENCE_WORDS: Final = (5, 30)
# Frequency of turns with one, two and three sentences: 25 words on average, as in LoCoMo.
_SENTENCES: Final = (0.65, 0.3, 0.05)
# Below the length of a chunk, including the speaker, so that a turn is one chunk.
_TURN_CHARACTERS: Final = 560
_QUESTION_SHARE: Final = 0.15
# Zipf-Mandelbrot: the offset of English.
_ZIPF_OFFSET: Final = 2.7
# Components of a vector: its topic, its session, and its own part.
_SESSION_STRENGTH: Final = 0.35
_NOISE_STRENGTH: Final = 0.75
_QUESTIONS: Final = (
    "What did we say about the {} and the {} with the {}?",
    "When was it that you told me of the {}, the {} and the {}?",
    "Who had the {} after the {} and before the {}?",
    "Do you remember the {}, and which {} was better than the {}?",
)


@dataclass(frozen=True, slots=True)
class Talk:
    """One session: speakers, texts by turn, and a unit vector for each turn."""

    speakers: tuple[str, str]
    texts: Sequence[str]
    vectors: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Topic:
    """Things, a vocabulary, and the direction of the vectors of its texts."""

    things: Sequence[str]
    words: Sequence[str]
    centre: NDArray[np.float32]


class MadeUpTalk:
    """Sessions and questions of several parts (agents), each with topics of its own.

    The same seed and embedder give the same ones, if they are requested in the same order.
    """

    def __init__(self, embed: Embed, *, topics: int, parts: int = 1, seed: int) -> None:
        self._chance = np.random.default_rng(seed)
        self._function, self._things = _FUNCTION_WORDS.split(), _THINGS.split()
        self._vocabulary = _words(self._chance, _VOCABULARY_WORDS)
        self._zipf = np.cumsum(1.0 / (np.arange(1, _VOCABULARY_WORDS + 1) + _ZIPF_OFFSET))
        made = self._make_topics(embed, topics * parts)
        self._topics = [made[start : start + topics] for start in range(0, len(made), topics)]
        dim = made[0].centre.size
        basis, _ = np.linalg.qr(self._chance.standard_normal((dim, dim)))
        scale = 1.0 / np.sqrt(np.arange(1, dim + 1))
        self._noise = (basis * (scale / np.linalg.norm(scale))).T.astype(np.float32)

    def session(self, turns: int, *, part: int = 0) -> Talk:
        """Return a session about one topic; its texts differ from each other."""
        topic = self._topic(part)
        first, second = self._chance.choice(len(SPEAKERS), 2, replace=False)
        texts: dict[str, None] = {}
        while len(texts) < turns:
            texts[self._turn(topic)] = None
        return Talk((SPEAKERS[first], SPEAKERS[second]), list(texts), self._vectors(topic, turns))

    def question(self, *, part: int = 0) -> str:
        """Return a question about the things of one topic."""
        form = _QUESTIONS[int(self._chance.integers(len(_QUESTIONS)))]
        return form.format(*self._chance.permutation(self._topic(part).things))

    def _topic(self, part: int) -> Topic:
        topics = self._topics[part]
        return topics[int(self._chance.integers(len(topics)))]

    def _make_topics(self, embed: Embed, count: int) -> list[Topic]:
        # Without the most common words, which belong to all topics.
        common = _VOCABULARY_WORDS // 20
        words = [
            [self._vocabulary[i] for i in self._chance.integers(common, _VOCABULARY_WORDS, _TOPIC_WORDS)]
            for _ in range(count)
        ]
        things = [self._chance.choice(self._things, _TOPIC_THINGS, replace=False).tolist() for _ in range(count)]
        centres = embed([f"We were talking about the {', the '.join(named)}." for named in things])
        return [Topic(*made) for made in zip(things, words, centres, strict=True)]

    def _turn(self, topic: Topic) -> str:
        count = 1 + int(self._chance.choice(len(_SENTENCES), p=_SENTENCES))
        sentences = [self._sentence(topic) for _ in range(count)]
        text = sentences[0]
        for sentence in sentences[1:]:
            if len(text) + 1 + len(sentence) > _TURN_CHARACTERS:
                break
            text = f"{text} {sentence}"
        return text

    def _sentence(self, topic: Topic) -> str:
        count = int(self._chance.integers(_SENTENCE_WORDS[0], _SENTENCE_WORDS[1] + 1))
        kinds, picks = self._chance.random((2, count + 1)).tolist()
        ranks = np.searchsorted(self._zipf, self._chance.random(count) * self._zipf[-1]).tolist()
        words = []
        for kind, pick, rank in zip(kinds, picks, ranks, strict=False):
            if kind < _FUNCTION_SHARE:
                words.append(self._function[int(pick * len(self._function))])
            elif kind < _FUNCTION_SHARE + _THING_SHARE:
                words.append(topic.things[int(pick * _TOPIC_THINGS)])
            elif kind < _FUNCTION_SHARE + _THING_SHARE + _TOPIC_SHARE:
                words.append(topic.words[int(pick * _TOPIC_WORDS)])
            else:
                words.append(self._vocabulary[rank])
        end = "?" if picks[-1] < _QUESTION_SHARE else "."
        return " ".join(words).capitalize() + end

    def _vectors(self, topic: Topic, count: int) -> NDArray[np.float32]:
        dim = topic.centre.size
        noise = self._chance.standard_normal((count + 1, dim), dtype=np.float32) @ self._noise
        rows = topic.centre + _SESSION_STRENGTH * noise[-1] + _NOISE_STRENGTH * noise[:-1]
        unit: NDArray[np.float32] = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype("<f4")
        return unit


def _words(chance: np.random.Generator, count: int) -> list[str]:
    """Return different words of two to four syllables; the more common, the shorter."""
    syllables = _SYLLABLES.split()
    found: dict[str, None] = {}
    while len(found) < count:
        length = 2 + 2 * len(found) // count + int(chance.integers(0, 2))
        found["".join(syllables[i] for i in chance.integers(0, len(syllables), length))] = None
    return list(found)
