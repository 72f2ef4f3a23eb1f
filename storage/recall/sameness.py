"""Decides whether two texts say the same: by their words, numbers, names, negations and opposites, in their order.

No vector decides that. With all-MiniLM-L6-v2, these pairs have a cosine above .95 and do not say the same: "from Rome
to Paris" and "from Paris to Rome" (.998), "tea over coffee" and "coffee over tea" (.996), "on the left shelf" and "on
the right shelf" (.984), releases 2.3.1 and 2.3.2 (.981), "must pass" and "must never pass" (.979), "Anna owes Ben" and
"Ben owes Anna" (.976), Monday and Tuesday (.972), the 5th and the 6th (.958); "floor 3" and "floor 4" have .937. So two
texts say the same only if they have the same words, except for small words, inflection and spelling. It errs on the
safe side: if it finds a difference where there is none, both texts stay.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from storage.recall.words import with_few_marks

# Each line is a scale; its sides are separated by |, and the words of a side mean the same.
_SCALES: Final = """
left | right
before | after | during
up | down
off
out
over | under
above | below
inside | outside
more most | less least fewer fewest
all every each always | some sometimes | many often | few seldom rarely | any
like likes liked love loves loved enjoy enjoys enjoyed | dislike dislikes disliked hate hates hated
start starts started begin begins began | stop stops stopped end ends ended quit quits | continue continues continued
enable enables enabled | disable disables disabled
allow allows allowed permit permits permitted | forbid forbids forbidden deny denies denied
accept accepts accepted approve approves approved | reject rejects rejected decline declines declined refuse refuses
buy buys bought | sell sells sold
open opens opened | close closes closed shut
win wins won | lose loses lost
increase increases increased | decrease decreases decreased reduce reduces reduced
add adds added | remove removes removed delete deletes deleted
include includes included | exclude excludes excluded
arrive arrives arrived | leave leaves depart departs departed
send sends sent | receive receives received
old older | new newer | young younger
big bigger large larger | small smaller little
high higher | low lower
long longer | short shorter brief
early earlier | late later
hot warm | cold cool
good better best | bad worse worst
fast faster quick | slow slower
same | different
true | false
public | private
cheap cheaper | expensive
easy easier | hard harder difficult
light | dark
full | empty
black | white | red | green | blue | yellow | orange | purple | brown | grey gray | pink
possible | impossible
able | unable
legal | illegal
safe | unsafe
correct | incorrect wrong
married | divorced | single
north | south | east | west
front | back
top | bottom
import | export
internal | external
minimum | maximum
morning mornings | noon | afternoon afternoons | evening evenings | night nights
today | tomorrow | yesterday | tonight
hourly | daily | weekly | monthly | yearly annually
minute minutes | hour hours | day days | week weeks | month months | year years
monday mondays | tuesday tuesdays | wednesday wednesdays | thursday thursdays | friday fridays | saturday saturdays
sunday sundays
january | february | march | april | june | july | august | september | october | november | december
spring | summer | autumn | winter
i me my mine myself | you your yours yourself | he him his himself | she her hers herself | we us our ours
they them their
mother mum mom | father dad | brother | sister | son | daughter | wife | husband | uncle | aunt
was were | had | did | used | will shall | would | may | might | could | must | should
here | there
"""


def _sides() -> dict[str, str]:
    sides = [side.split() for scale in _SCALES.strip().splitlines() for side in scale.split("|")]
    return {word: side[0] for side in sides for word in side}


# For each word, the first word of its side.
SIDES: Final = _sides()

_NEGATIONS: Final = (
    "not no never none nothing nobody nowhere neither nor without cannot hardly barely nicht kein keine keinen keiner"
    " nie niemals ohne ne pas jamais sans non nunca sin mai senza não nem sem 不 没 沒 无 無 非 未 别"
)
NEGATIONS: Final = frozenset(_NEGATIONS.split())

_ONES: Final = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
    " eighteen nineteen twenty"
)
_ORDINALS: Final = "zeroth first second third fourth fifth sixth seventh eighth ninth tenth"
_OTHERS: Final = (
    "thirty forty fifty sixty seventy eighty ninety hundred thousand million billion once twice half quarter double"
    " triple dozen"
)

# Words for numbers, with their digits if they are unambiguous.
NUMBERS: Final = (
    {word: word for word in _OTHERS.split()}
    | {word: f"{number}." for number, word in enumerate(_ORDINALS.split())}
    | {word: str(number) for number, word in enumerate(_ONES.split())}
)


# Two texts with more different words are about different things and cannot contradict each other.
_MAX_NEW_WORDS: Final = 2
# For longer texts no other order of their parts is tried: it takes time with the square of the length.
_MAX_TURNED_WORDS: Final = 60
# `king` and `thing` are no gerunds.
_MIN_GERUND_LETTERS: Final = 5
_CJK: Final = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
_APOSTROPHE: Final = "['\u2019]"
_WORD: Final = re.compile(rf"[{_CJK}]|\d+(?:[.,:/-]\d+)*|[^\W\d_{_CJK}]+(?:{_APOSTROPHE}[^\W\d_{_CJK}]+)*")
_QUOTED: Final = re.compile('["\u201c\u201e\u00ab]([^"\u201c\u201d\u201e\u00ab\u00bb]{1,200})["\u201c\u201d\u00bb]')
# The patterns begin with the characters that can match, not with what is before them: a search takes a quarter as long.
_NOT: Final = re.compile(rf"['\u2019nN](?i:(?<=\bcan{_APOSTROPHE})t|(?<=\bcann)ot|(?<!\bcan)(?<=\wn){_APOSTROPHE}t)\b")
_OWNER: Final = re.compile(rf"{_APOSTROPHE}s?$")
# Stop words: a sentence means the same without them. Not `have`: Ann has a boss, or is one. Not `being`: a thing being
# done is not done. Not `too`: too hot is not hot.
_SMALL_WORDS: Final = "a an the is are am be been do does it its that of and very really just also so please then"
_SMALL: Final = frozenset(_SMALL_WORDS.split())
# Names if they are written in capitals, else ordinary words. In a text of capitals alone they are no names.
_IN_CAPITALS: Final = frozenset({"IT", "US", "WHO"})
# Characters besides words that change a statement: currency signs, question marks, emojis such as a thumb down.
_MARK: Final = re.compile(
    r"!(?==)|[^\w\s.,!;:'\"\u2018-\u201f\u00ab\u00bb()\[\]{}`*_\u2026\u00b7\u2022\u2010-\u2015\u3001-\u3015-]"
)
_MINUS: Final = re.compile(r"[-\u2212](?<!\w.)(?=\d)")
# The two ways to spell English.
_SPELLINGS: Final = ((re.compile(r"(?<=\w{3})our"), "or"), (re.compile(r"(?<=\w{3})is(?=e[sd]?$|ing$|ation)"), "iz"))
# A comparative is not its adjective: opposites do not distinguish `good` from `better`. `tls` is no plural.
_VOWEL: Final = re.compile(r"[aeiouy]|[^\x00-\x7f]")
_COMPARING: Final = re.compile(r"(?:er|est|most|more|less|best|worse|worst)$")


@dataclass(frozen=True, slots=True)
class Statement:
    """The features of a text that are compared: `exact` must be equal, `says_the_same` compares the rest.

    `names` are the words with a capital letter, except a stop word at the beginning: `plan A` is not `the plan`.
    `tokens` are all words but stop words, in order: numbers in digits, negations, and for an opposite the first word of
    its side.
    """

    exact: tuple[object, ...]
    names: frozenset[str]
    words: frozenset[str]
    tokens: tuple[str, ...]


class _Word(NamedTuple):
    """What a word contributes to a statement; a part that it does not have is empty."""

    folded: str
    number: str
    is_negation: bool
    side: str
    name: str
    token: str


_NO_WORDS: Final = ((),) * len(_Word._fields)


@lru_cache(maxsize=16_384)
def _word(original: str) -> _Word:
    word = _OWNER.sub("", original.casefold())
    return _Word(
        word,
        NUMBERS.get(word, word) if word in NUMBERS or word[0].isdigit() else "",
        word in NEGATIONS,
        SIDES.get(word, ""),
        word if original[0].isupper() else "",
        "" if word in _SMALL else _token(word),
    )


@lru_cache(maxsize=4_096)  # as for claims, the same texts are recalled again and again
def statement(text: str) -> Statement:
    """Return the features of a text that can be compared without understanding it."""
    expanded = _NOT.sub(" not", unicodedata.normalize("NFKC", with_few_marks(text)))
    original = _WORD.findall(expanded)
    columns = zip(*map(_word, original), strict=True) if original else _NO_WORDS
    folded, numbers, negations, sides, names, tokens = columns
    quoted = frozenset(found.strip().casefold() for found in _QUOTED.findall(expanded))
    marks = (len(_MINUS.findall(expanded)), "".join(sorted(_MARK.findall(expanded))))
    in_capitals = frozenset() if expanded.isupper() else _IN_CAPITALS.intersection(original)
    if names and names[0] in _SMALL:
        names = names[1:]
    return Statement(
        exact=(
            tuple(sorted(filter(None, numbers))),
            sum(negations),
            frozenset(filter(None, sides)),
            quoted,
            marks,
            in_capitals,
        ),
        names=frozenset(filter(None, names)),
        words=frozenset(folded),
        tokens=tuple(filter(None, tokens)),
    )


def says_the_same(first: Statement, second: Statement) -> bool:
    """Return whether two texts have the same words in the same order, ignoring small words and word forms."""
    return (
        first.exact == second.exact
        and len(first.tokens) == len(second.tokens)
        and first.names <= second.words
        and second.names <= first.words
        and (first.tokens == second.tokens or _is_reordered(first.tokens, second.tokens))
    )


def contradicts(first: Statement, second: Statement) -> bool:
    """Return whether two texts with nearly the same vector differ only in a number, a negation or an opposite."""
    if first.exact[:3] == second.exact[:3]:
        return False
    one, other = _plain_words(first), _plain_words(second)
    if not ((first.names & one) <= second.words and (second.names & other) <= first.words):
        return False
    return len(one ^ other) <= _MAX_NEW_WORDS


class NameMasks:
    """Bit masks that rule out pairs of very many statements by their names: `says_the_same` would reject those, too.

    Each statement has 64 bits for its names and 64 for its words: if a name's bit is not among the bits of the other's
    words, the other does not have the name.
    """

    def __init__(self, statements: Sequence[Statement]) -> None:
        self._names = np.array([_mask(one.names) for one in statements], dtype=np.uint64)
        self._words = np.array([_mask(one.words) for one in statements], dtype=np.uint64)

    def possible(self, row: int, others: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return those of `others` whose names may be among the words of `row`, and the reverse."""
        missing = (self._names[others] & ~self._words[row]) | (self._names[row] & ~self._words[others])
        found: NDArray[np.intp] = others[missing == 0]
        return found


def normalised_text(text: str) -> str:
    """Return a text without extra white space and final punctuation: texts that then are equal say the same."""
    return " ".join(unicodedata.normalize("NFC", with_few_marks(text)).split()).rstrip(".!")


def _plain_words(text: Statement) -> frozenset[str]:
    """Return the words that are neither stop words nor numbers, negations or one side of an opposite."""
    return frozenset(
        word
        for word in text.words
        if not (word in _SMALL or word in NUMBERS or word in NEGATIONS or word in SIDES or word[0].isdigit())
    )


def _is_reordered(first: Sequence[str], second: Sequence[str]) -> bool:
    """Return whether one text is the other, or has its end before its beginning.

    "I drink tea in the morning" may become "In the morning I drink tea", but "Anna owes Ben" not "Ben owes Anna".
    """
    count = len(first)
    starts = range(count) if 2 < count <= _MAX_TURNED_WORDS else range(1)
    return any(
        all(_is_form_of(one, second[(start + place) % count]) for place, one in enumerate(first)) for start in starts
    )


def _mask(words: Iterable[str]) -> int:
    mask = 0
    for word in words:
        mask |= 1 << zlib.crc32(word.encode()) % 64  # equal in every process, unlike `hash`
    return mask


def _token(word: str) -> str:
    if word in NUMBERS:
        return NUMBERS[word]
    if word in NEGATIONS:
        return "not"
    if word in SIDES and not _COMPARING.search(word):
        return SIDES[word]
    for pattern, spelling in _SPELLINGS:
        word = pattern.sub(spelling, word)
    return word


def _is_form_of(one: str, other: str) -> bool:
    return one == other or not _bases(one).isdisjoint(_bases(other))


@lru_cache(maxsize=16_384)
def _bases(word: str) -> frozenset[str]:
    """Return the words of which a word may be a form: `living` and `lives` of `live`. Past tenses are not included."""
    if word.endswith("ies"):
        return frozenset({word, word[:-3] + "y"})
    if word.endswith(("ses", "xes", "zes", "ches", "shes", "oes")):
        return frozenset({word, word[:-1], word[:-2]})
    if word.endswith("s") and not word.endswith("ss") and _VOWEL.search(word):
        return frozenset({word, word[:-1]})
    if word.endswith("ing") and len(word) > _MIN_GERUND_LETTERS:
        stem = word[:-3]
        return frozenset({word, stem, stem + "e", stem[:-1] if stem[-1] == stem[-2] else stem})
    return frozenset({word})
