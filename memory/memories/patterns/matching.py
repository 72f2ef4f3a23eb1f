"""The common parts of the patterns: sentences in the user's own words, values, statements and rules.

A message is split into sentences without code, quotes, pasted text, questions or fiction. Text that is not the user's
own is covered with `COVER`, character by character, so that positions stay the same. Every repetition in a pattern has
a bound, so that any text is searched in linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from memory.memories.patterns import vocabulary as words
from reverie.memories.types import Lifetime, MemoryKind, Tier

# Longer sentences are not looked at.
MAX_SENTENCE_CHARACTERS: Final = 400
BLANKS: Final = r"\s{1,3}"
# Up to the end of a sentence, or of a part of it.
REST: Final = rf".{{0,{MAX_SENTENCE_CHARACTERS}}}"


class Anchored:
    """A case-insensitive pattern that matches from the beginning of a text only, compiled when it is first used.

    Compiling the 220 of them takes 0.2 s, a sixth of the start of a server, and few processes read messages.
    """

    def __init__(self, pattern: str) -> None:
        """Keep the pattern without its beginning."""
        self._pattern = pattern

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        """The compiled pattern."""
        return re.compile(rf"\A(?:{self._pattern})", re.IGNORECASE)

    @cached_property
    def match(self) -> Callable[..., re.Match[str] | None]:
        """The method of that name of the compiled pattern."""
        return self.compiled.match


# The category of facts about the user; the job adds the user's name.
PROFILE: Final = "profile"


@dataclass(frozen=True, slots=True)
class Statement:
    """One thing that a user said about themselves or asked to be remembered.

    `quote` has the user's own words. A newer statement with the same `subject` supersedes an older one. Only facts have
    `key` and `value`. `takes_back` names an instruction that is no longer wanted. An `unconfirmed` instruction stood
    among other words and waits for a confirmation. A statement that `only_changes` something is worthless unless that
    thing is known. `corrects` has the contents of earlier statements that it replaces. Times are microseconds in UTC.
    """

    content: str
    kind: MemoryKind
    quote: str
    subject: str | None
    confidence: float
    importance: float
    lifetime: Lifetime = "short_term"
    tier: Tier = "workspace"
    key: str | None = None
    value: str | None = None
    tags: tuple[str, ...] = ()
    expires_at: int | None = None
    takes_back: str | None = None
    unconfirmed: bool = False
    only_changes: bool = False
    corrects: tuple[str, ...] = ()

    @property
    def category(self) -> str | None:
        """Return the category of a fact; None for anything else."""
        return PROFILE if self.key is not None else None


# A private-use character: no pattern matches it by accident.
COVER: Final = "\ue000"
# Longer messages are mostly pasted text.
MAX_MESSAGE_CHARACTERS: Final = 4_000

_APOSTROPHES = str.maketrans({"\u2019": "'", "\u2018": "'", "\u02bc": "'", "\u00a0": " "})
# Code and its output, quoted lines and indented blocks: pasted text.
_PASTED: Final = r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)|`[^`\n]*`|^[ \t]*>[^\n]*$|^(?: {4}|\t)[^\n]*$"
_QUOTED: Final = (
    r"\"[^\"]*\"|\u201c[^\u201d]*(?:\u201d|\Z)|\u00ab[^\u00bb]{0,400}\u00bb|\u201e[^\u201c\u201d]{0,400}[\u201c\u201d]"
    r"|(?<![\w'])'[^'\n]{1,200}(?:'[a-z][^'\n]{0,200}){0,8}'(?!\w)"  # 'so', but not an apostrophe within a word
    r"|<[^<>\n]{1,200}>|https?://\S+"
)
_FOREIGN = re.compile(_PASTED, re.DOTALL | re.MULTILINE)
_NOT_OWN = re.compile(f"{_PASTED}|{_QUOTED}", re.DOTALL | re.MULTILINE)
# Speaker labels and list marks, as in transcripts, letters and forms: these words are not the user speaking now.
LABELLED = re.compile(r"^[ \t]{0,40}(?:[-*\u2022#|]|\d{1,20}[.)]|[A-Z][\w .'-]{0,30}:(?!//))", re.MULTILINE)
# Before a colon, these words lead to something the user says about themselves; other labels lead to other text. A line
# without a mark at its end leads to other text, too: it is a heading or introduces a paste.
_OWN_LABEL: Final = (
    r"(?:(?:please )?(?:remember|note|keep in mind|make a note(?: of this)?|take note)(?: that)?|don't forget"
    r"|fyi|btw|i(?:'d| would) say(?: this)?|ps|p\.s\.|edit|correction|clarification|reminder|important"
    r"|fun fact|sorry|intro|heads[ -]up"
    r"|(?:(?:big|good|great|happy|exciting|bad|sad|some|quick|small|life) )?(?:news|update)(?: tho(?:ugh)?| everyone)?"
    r"|(?:a (?:bit|little) of |some |quick )background(?: (?:about|on) me| since [^:\n]{1,40})?"
    r"|about (?:(?:my|our) [^:\n]{1,40}|the [^:\n]{1,40} i (?:told|mentioned)[^:\n]{0,20})"
    r"|[^:\n]{0,60}\bintroduce myself\b[^:\n]{0,20}"
    r"|for (?:the record|(?:future|your) reference)|(?:a (?:bit|little|few words|few things) )?about (?:me|myself))"
)
_LABEL: Final = (
    rf"^[ \t]{{0,40}}(?!(?:[^\n:]{{0,60}}[.!?] )?{_OWN_LABEL}:)(?:[^\n:]|(?<=\d):(?=\d)){{1,80}}(?<!\d):"
    r"(?!//|-?[()|/DP](?:\s|\Z))[ \t]{0,40}\S"
)
_LEADING_LINE: Final = r"[^\s.!?,;:\u2026][ \t]{0,40}\r?\n"
# Words after which a text is not about the user: material to work on, a role, a hypothesis.
MATERIAL = re.compile(
    rf":[ \t]{{0,40}}(?:\n|\Z)|{_LABEL}|{_LEADING_LINE}"
    r"|\b(?:label|classify|annotate|tag|analy[sz]e|parse|identify|count|use)\b[^.!?\n]{0,40}\b(?:sentences?|statements?"
    r"|phrases?)\b|\bin (?:this|the|our|my) (?:scenario|story|scene|game|role|novel|film|movie|play|campaign|song"
    r"|riddle|dialog(?:ue)?)\b|\b(?:re-?writ|re-?phras|paraphras|translat|proof-?read|summari[sz]|transcrib"
    r"|role-?play)\w{0,40}|\b(?:write|compose|draft|continue|complete|correct|generate|create|edit|improve|finish|fix"
    r"|make up|come up with)\b[^.!?\n]{0,60}\b(?:story|poem|song|lyrics|essay|letter|e-?mail|script|dialog(?:ue)?"
    r"|speech|text|sentence|paragraph|bio|biography|profile|post|tweet|caption|review|message|reply|response|resume|cv"
    r"|statement|article|blog|grammar|scene|monologue|code|function|program|prompt|conversation|chapter|novel"
    r"|character)|\b(?:imagine|suppose|supposing|pretend|assume|assuming|hypothetical\w{0,40}|let's say|what if|act as"
    r"|act like|play the role|you are (?:an?|the)\b|you will be|as if|in character|in the voice|in the style"
    r"|from the perspective|for example|for instance|e\.g\.|such as this|fiction\w{0,40}|the following)",
    re.IGNORECASE | re.MULTILINE,
)
# A standing instruction, which uses the same words as a single task.
_STANDING = re.compile(
    r"\A\s{0,3}(?:please,?\s{1,3})?(?:from now on|going forward|in (?:the )?future|always|never)\b", re.IGNORECASE
)
# A request in the form of a question.
_ASKED_FOR = re.compile(
    r"\A\s{0,3}(?:can|could|would) you (?:please )?(?:remember that|remind me|always|never|call me)\b", re.I
)
# Words that are quoted to be discussed, with or without quotation marks.
ABOUT_WORDS = re.compile(
    r"\b(?:this|that|the) (?:\w{1,40} )?(?:line|lyrics?|quot(?:e|ation)|riddle|joke|tongue twister|proverb)\b"
    r"|\bknock,? knock\b|\bopening line\b|\byeah,? right\b(?! now)",
    re.IGNORECASE,
)
# A role-play begins, in which `I` is a character.
_GAME_BEGINS = re.compile(
    r"\b(?:let's|let us|can we|could we|i want to|we)\b[^.!?\n]{0,30}\brole-?play|\brole-?play (?:as|with|a|that)\b"
    r"|\b(?:you are|you're|you play|be) [^.!?\n]{1,60}\b(?:and|,) (?:i am|i'm|i play|i'll be)\b"
    r"|\byou are now (?:an?|the|(?-i:[A-Z]))|\b(?:stay|remain) in character\b"
    r"|\bpretend (?:that )?(?:i|you|you're|we|to be)\b|\blet's play\b[^.!?\n]{0,40}\b(?:i am|i'm|i'll be)\b",
    re.IGNORECASE,
)
_GAME_ENDS = re.compile(
    r"\b(?:out of character|ooc|for real now|game over"
    r"|(?:end|stop|leave|quit|enough)\b[^.!?\n]{0,20}\b(?:role-?play\w{0,40}|game|character))\b",
    re.IGNORECASE,
)
JOKE = re.compile(
    r"\b(?:just )?kidding\b|\bjk\b|\bjoking\b|\bsarcas\w{1,40}|(?<!\w)/s\b|\bapril fools?\b"
    r"|\b(?:great|wonderful|fantastic|lovely|brilliant|perfect|awesome)\b,? (?:another|just what|more of)\b",
    re.IGNORECASE,
)
_LAUGHTER_IN_WORDS: Final = r"lol|lmao|rofl|ha(?:ha){1,40}|he(?:he){1,40}"
LAUGHTER = re.compile(
    rf"\b(?:{_LAUGHTER_IN_WORDS})\b|"
    r"[\U0001f602\U0001f923\U0001f61c\U0001f61d\U0001f609\U0001f643]|;-?\)",
    re.IGNORECASE,
)
# Laughter before a sentence is about what was said before it: "haha yes, I'm from Faro".
_LAUGHING: Final = Anchored(rf"\s{{0,3}}(?:(?:{_LAUGHTER_IN_WORDS})[\s,!.-]{{1,4}}){{1,2}}")
# Laughter at the end is about the last clause: "I'm allergic to cats so I'll sit outside haha".
_LAUGHED_AT: Final = re.compile(
    rf",?\s(?:so|but(?!\s(?:not|only|just)\b))\s(?:(?!\sso\s|\sbut\s)[^,]){{3,120}}\b(?:{_LAUGHTER_IN_WORDS})\W{{0,3}}\Z",
    re.IGNORECASE,
)
# In `I prefer tea, so what can I order?`, the part before the question is a statement.
_ASKING_CLAUSE: Final = re.compile(
    r",\s(?:(?:so|and|but)\s)?(?:(?:can|could|would|will|do|are|have) you|what|how|which|where|is|are|do|any"
    r"|can|should|does|did|will|would|why)\b",
    re.IGNORECASE,
)
_ABBREVIATED: Final = (
    r"(?<!\bDr)(?<!\bMr)(?<!\bMrs)(?<!\bMs)(?<!\bSt)(?<!\bProf)(?<!\bvs)(?<!\be\.g)(?<!\bi\.e)(?<!\b[A-Z])"
)
ABBREVIATED_END = re.compile(rf"{_ABBREVIATED}\.(?=\s|$|\))|[!?\u2026]+|\n+|\.\.+", re.MULTILINE)
_ASKS: Final = frozenset("?\uff1f\u061f")


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of the user, as it was written (`original`) and with words that are not their own covered (`text`)."""

    text: str
    original: str

    def words(self, start: int, end: int) -> str:
        """Return the original words between two positions of `text`."""
        return self.original[start:end]


def sentences_of(message: str) -> Iterator[Sentence]:
    """Yield the sentences in which a user states something, in order; none if the message is a joke or pasted."""
    if len(message) > MAX_MESSAGE_CHARACTERS or JOKE.search(message) or ABOUT_WORDS.search(message):
        return
    covered = covered_text(message)
    if len(LABELLED.findall(covered)) > 1:
        return
    yield from _stated_sentences(covered, message)


def is_game(message: str, *, before: bool) -> bool:
    """Return whether a conversation is a role-play from this message on; `before` is whether it was one before."""
    if _GAME_ENDS.search(message):
        return False
    return before or _GAME_BEGINS.search(message) is not None


def with_plain_apostrophes(message: str) -> str:
    """Return a message of the same length with the apostrophes and blanks that patterns know."""
    return message.translate(_APOSTROPHES)


def covered_text(message: str) -> str:
    """Return a message with plain apostrophes, in which code, quotations and links are covered."""
    return _NOT_OWN.sub(lambda found: COVER * len(found[0]), with_plain_apostrophes(message))


def without_foreign(message: str) -> str:
    """Return a message without pasted code and quoted lines."""
    return _FOREIGN.sub(" ", message)


def _stated_sentences(covered: str, message: str) -> Iterator[Sentence]:
    start = 0
    material = _start_of_material(covered, 0)
    for mark in [*ABBREVIATED_END.finditer(covered), None]:
        stop = mark.start() if mark else len(covered)
        text = covered[start:stop]
        if stop > material:
            if not _STANDING.match(text):
                return
            material = _start_of_material(covered, stop)
        is_question = mark is not None and bool(_ASKS & set(mark[0])) and not _ASKED_FOR.match(text)
        # Laughter follows a sentence as often as it is part of it.
        following = covered[stop : stop + 8]
        asks = _ASKING_CLAUSE.search(text) if is_question else None
        if asks is not None:
            text, is_question = text[: asks.start()], False
        if (laughed_at := _LAUGHED_AT.search(text)) is not None:
            text = text[: laughed_at.start()]
        begins = _LAUGHING.match(text)
        is_joke = LAUGHTER.search(text + following, begins.end() if begins else 0) is not None
        if text.strip(COVER + " \t") and not is_question and not is_joke:
            indent = len(text) - len(text.lstrip())
            yield Sentence(text[indent:].rstrip(), message[start + indent : start + len(text)].rstrip())
        start = mark.end() if mark else stop


def _start_of_material(covered: str, start: int) -> int:
    found = MATERIAL.search(covered, start)
    return found.start() if found else len(covered)


_MAX_VALUE_WORDS: Final = 9
_NAME_CHARACTERS: Final = 60

# Where a value ends because another thought begins.
_NEXT_THOUGHT = re.compile(
    r"\s{0,3}(?:[,;:()\[\]\u2013\u2014]|\s--?\s|\s-\s?$|\s(?:because|since|cause|but|so|although|though|while|whereas"
    r"|which|who|where|when|whenever|until|unless|except|if|then|too|either|anyway|as well|even|especially|however"
    r"|and then|at the moment|right now|these days|nowadays|from now on|any ?more|now(?=\s{0,3}(?:$|[,.;!]))|of course"
    r"|by the way|btw|please|thanks|thank you|instead|originally"
    r"|and (?:i|i'm|i've|i'd|i'll|my|we|we're|our|it|it's|he|she|he's"
    r"|she's|they|they're|that|this|there|was|is|am|have|had|will|would|can|could|want|need|wanted|think|am|don't|love"
    r"|started|joined|moved|quit|sold|bought|got|passed|signed|adopted|hired"
    r"|like|hate|enjoy|feel|find|hope|usually|always|often|never|plan|try|trying|looking|thinking|just|what|how|also"
    r"|so)\b"
    r"|or (?:something|anything|whatever|so)\b|and (?:stuff|all|such|things like)\b)\b)",
    re.IGNORECASE,
)
# A condition on the value: without it the statement would say something else.
_CONDITION = re.compile(
    r"\s{0,3}[,(\u2013\u2014-]{0,40}\s{0,3}(?:if|when|whenever|unless|until|except"
    r"|that|how|what|where|who|but (?:only|not)"
    r"|and (?:what|how))\b",
    re.IGNORECASE,
)
# Within a value, these refer to something mentioned or seen before.
_SEEN_BEFORE = re.compile(
    r"\b(?:that|this|these|those|it|its|it's|they|them|you|your|you're|you've|yours|his|her|him|their|he|she|above"
    r"|below|here|there's|idea|ideas|suggestions?|recommendations?|advice|tips?|sounds?|way|fact|thought|both|we|us|our"
    r"|i|i'm"
    r"|i've|i'd|former|latter|number|option|version)\b|#",
    re.IGNORECASE,
)
_ARTICLE = re.compile(r"^(?:a|an|the|my)\s{1,3}", re.IGNORECASE)
_NAME_WORD: Final = r"[A-Z\u00c0-\u00de][\w'\u2019.-]{0,40}"
_NAME = re.compile(rf"{_NAME_WORD}(?:\s(?:{_NAME_WORD}|de|da|di|van|von|der|la|le|bin|al)){{0,4}}$")


def cut(text: str) -> str:
    """Return a value up to the next thought in its sentence; empty if a condition on the value follows."""
    found = _NEXT_THOUGHT.search(text)
    if found and _CONDITION.match(text, found.start()):
        return ""
    return (text[: found.start()] if found else text).strip(" \t.,;:-*_")


def is_plain(value: str, *, max_words: int = _MAX_VALUE_WORDS, covered: bool = False) -> bool:
    """Return whether a value is short and refers to nothing mentioned before.

    With `covered` it may be, or contain, a title in quotation marks.
    """
    parts = value.split()
    return (
        0 < len(parts) <= max_words
        and value.lower() not in words.MEANINGLESS_ALONE
        and any(character.isalnum() or character == COVER for character in value)
        and (covered or COVER not in value)
        and parts[0].lower() not in words.REFERRING_STARTS
        and not _SEEN_BEFORE.search(value)
        and parts[-1].lower() not in words.INCOMPLETE_ENDINGS
    )


def is_name(value: str) -> bool:
    """Return whether a value is written like the name of a person, an animal or a place."""
    return bool(_NAME.match(value)) and value.split()[0] not in words.NO_NAMES and len(value) <= _NAME_CHARACTERS


def as_subject(value: str) -> str:
    """Return a value as part of a subject: in lower case, without its article, with single blanks."""
    return " ".join(_ARTICLE.sub("", value).lower().replace("\u2019", "'").split())


_ADVERBS: Final = (
    r"really|also|just|currently|now|actually|absolutely|do|still|truly|both|always|generally|usually|personally"
    r"|already|mostly|definitely|particularly|especially|simply"
)
ADVERB: Final = rf"(?:(?:{_ADVERBS}){BLANKS}){{0,2}}"
I_AM: Final = r"i(?:'m| am)\s{1,3}"
IS: Final = r"(?:'s| is)(?: now)?\s{1,3}"
VALUE: Final = rf"(?P<value>\S{REST})"
# After a value that was matched whole: the clause ends, or continues with something else.
END: Final = (
    r"(?=\s{0,3}(?:$|[,;.!()](?!\d)|\b(?:and|but|so|now|fyi|at|in|on|for|with|who|from|by|working|living|because|btw"
    r"|by the way|though|too|as well)\b))"
)


@dataclass(frozen=True)
class PatternMatch:
    """A match of a pattern that begins at the first word of a clause."""

    clause: Sentence
    regex_match: re.Match[str]

    @cached_property
    def covered_value(self) -> str:
        """Return the value without the rest of the sentence and with quotations covered: checks use this form."""
        return cut(self.regex_match["value"])

    @cached_property
    def value(self) -> str:
        """Return the same value as it was written."""
        start = self.regex_match.start("value") + self.regex_match["value"].find(self.covered_value)
        return self.clause.words(start, start + len(self.covered_value))

    @property
    def whole(self) -> str:
        """Return everything that the pattern matched as the value, as it was written."""
        return self.clause.words(*self.regex_match.span("value"))

    @property
    def key(self) -> str:
        """Return the name of the attribute that has the value, in lower case with single blanks."""
        return " ".join(self.regex_match["key"].lower().split())

    @property
    def written_key(self) -> str:
        """Return the name of the attribute that has the value, as it was written."""
        return " ".join(self.regex_match["key"].split())

    def quote(self, value: str | None = None) -> str:
        """Return the user's words up to the end of the value."""
        return self.clause.words(0, self.regex_match.start("value")) + (self.value if value is None else value)


Maker = Callable[[PatternMatch], Statement | None]
Rule = tuple[Anchored, Maker]


def rule(pattern: str, make: Maker) -> Rule:
    """Return a rule: a case-insensitive pattern, and the function that makes a statement of its match."""
    return Anchored(pattern), make


def rules(make: Maker, *patterns: str) -> tuple[Rule, ...]:
    """Return a rule for each of these patterns, with one function for all of them."""
    return tuple(rule(pattern, make) for pattern in patterns)


def first_match(clause: Sentence, rules: Sequence[Rule]) -> Statement | None:
    """Return the statement that the first matching rule makes of a clause, if any."""
    for pattern, make in rules:
        found = pattern.match(clause.text)
        if found is not None:
            return make(PatternMatch(clause, found))
    return None
