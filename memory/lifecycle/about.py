"""Find the messages and memories about a person or a thing, so that they can be forgotten.

"my sister" is looked for as said ("my younger sister", the assistant's "your sister", a memory's "User's sister"), by
the names that conversations give her ("my sister Ana"), and in the messages after a mention that go on about her. Names
and identifiers are compared as a whole: "Ana" is not "Anabel", nor the last part of "Santa Ana", and "a@x.org" is not
"a.b@x.org". If a name may mean two people, the caller is asked which one is meant; nothing is guessed.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, Literal

Reason = Literal["named", "alias", "same conversation", "derived"]


@dataclass(frozen=True, slots=True)
class Said:
    """A text that may be about somebody: a message, or a memory with the message that it came from."""

    kind: Literal["message", "memory"]
    id: str
    session: str
    role: str
    speaker: str
    content: str
    at: int
    source: str = ""


@dataclass(slots=True)
class Found:
    """The texts about something with the reason for each; or, if several people are meant, what each is called."""

    items: list[tuple[Said, Reason]] = field(default_factory=list)
    people: list[str] = field(default_factory=list)


def _word_set(words: str) -> frozenset[str]:
    return frozenset(words.split())


# --- identifiers and words ---

_NUMBER = re.compile(r"\+?\(?\d[\d\s().-]{5,}\d")
_IP = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
_EDGES: Final = "\"'\u2018\u2019\u201c\u201d`.,;:!?()[]{}<>*"
_VERSION = re.compile(r"\d\.\d+\.\d")
_MANY_DIGITS: Final = 6
_WORD = re.compile(r"[^\W_]+(?:[-_][^\W_]+)*")
# Words of a request that do not help to find its subject.
_EMPTY: Final = _word_set(
    "a an the my our your of on in at to for from with by about and or is was are were be does do did not no user"
    " everything all anything this that these those s"
)


def _plain(text: str) -> str:
    """Return a text without accents and with straight quotes; its case stays."""
    folded = unicodedata.normalize("NFKD", text.replace("\u2019", "'").replace("\u00df", "ss"))
    return unicodedata.normalize("NFC", "".join(one for one in folded if not unicodedata.combining(one)))


def _normal(token: str) -> str:
    """Return a token as identifiers are compared: without case, separators, a scheme and a tag of a mail address."""
    token = re.sub(r"\\+", "/", token.casefold().strip(_EDGES).replace('"', ""))
    if _IP.fullmatch(token):
        return ".".join(str(int(part)) for part in token.split("."))
    if "@" in token[1:]:
        local, _, host = token.partition("@")
        return f"{local.partition('+')[0]}@{host}"
    if "/" in token:
        return re.sub(r"^\w+://", "", token).removeprefix("www.").rstrip("/")
    return re.sub(r"[-_.@]", "", token)


def _is_identifier(token: str) -> bool:
    """Return whether a token is no ordinary word or number: an address, a path, a code, a long number, a version."""
    digits = sum(map(str.isdigit, token))
    if not set(token).isdisjoint("@_/\\") or digits >= _MANY_DIGITS or _VERSION.search(token):
        return True
    return digits > 0 and any(map(str.isalpha, token))


def _tokens(text: str) -> set[str]:
    """Return all tokens of a text as identifiers are compared, numbers also without their separators."""
    numbers = {re.sub(r"\D", "", number) for number in _NUMBER.findall(text) if not _IP.search(number)}
    return numbers | {_normal(token) for token in text.split()}


def _words(text: str) -> set[str]:
    """Return the words of a text without their endings; a compound is one word, unless it has a digit."""
    found = [word for word in _WORD.findall(text.casefold()) if word not in _EMPTY]
    found += [part for word in found if re.search(r"\d", word) for part in re.split("[-_]", word)]
    return {re.sub(r"(?:ing|ed|es|s)$", "", word) if len(word) > 4 else word for word in found}


# --- what is asked for ---

_PREAMBLE = re.compile(
    r"^\s*(?:please\s+)?(?:(?:forget|delete|erase|remove)\s+)?(?:(?:everything|all|anything)\s+)?"
    r"(?:(?:that\s+)?you\s+know\s+)?(?:about\s+)?",
    re.IGNORECASE,
)
# In a text with single blanks.
_ALTERNATIVES = re.compile(r" / | ?[(),] ?| (?:or|aka|also known as) ", re.IGNORECASE)
_SCRIPT = re.compile(r"[\u0370-\u1dff\u2e80-\ud7ff\uf900-\ufaff]+(?: [\u0370-\u1dff\u2e80-\ud7ff\uf900-\ufaff]+)*")
_CAPITALS = re.compile(r"[A-Z][\w-]*(?:\s(?:(?:van|von|de|da|di|del|bin|al)\s)*[A-Z][\w-]*)*")
_RELATION = re.compile(r"(?i:my|our|your|(?:the )?user's)\s+([a-z][a-z-]*(?: [a-z][a-z-]*){0,2})\b")
_FEMALE: Final = _word_set(
    "sister mother mom mum mommy daughter wife girlfriend aunt grandmother grandma niece sister-in-law mother-in-law"
    " daughter-in-law fiancee stepmother stepsister"
)
_MALE: Final = _word_set(
    "brother father dad daddy son husband boyfriend uncle grandfather grandpa nephew brother-in-law father-in-law"
    " son-in-law fiance stepfather stepbrother"
)
_PRONOUN = re.compile(r"\b(?:(she|her|hers|herself)|(he|him|his|himself)|(they|them|their|theirs))\b", re.IGNORECASE)
_TITLES: Final = _word_set("Mr Mrs Ms Dr Prof Aunt Auntie Uncle Grandma Grandpa Miss Sir")
_CALENDAR: Final = _word_set(
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday January February March April May June July August"
    " September October November December I"
)


@dataclass(frozen=True, slots=True)
class Term:
    """One name for the subject of a request: identifiers, names, a relation to the user, or else several words."""

    text: str

    @property
    def identifiers(self) -> list[str]:
        """The identifiers in the text; a single number is not one."""
        tokens = [token for token in self.text.split() if re.search(r"[@_/\\\d]", token)]
        numbers = [re.sub(r"\D", "", found) for found in _NUMBER.findall(self.text) if not _IP.search(found)]
        if numbers and not any(re.search(r"[^\W\d]", token) for token in tokens):
            return numbers
        return [_normal(token) for token in tokens] if any(map(_is_identifier, tokens)) else []

    @property
    def relation(self) -> str:
        """The noun of `my sister`, in lower case."""
        found = _RELATION.match(self.text)
        return found[1].split()[-1] if found else ""

    @property
    def name(self) -> str:
        """The name in it, such as that of `my sister Ana`."""
        if self.identifiers or re.search(r"\d", self.text):
            return ""
        if found := _SCRIPT.search(self.text):
            return found[0]
        named = _CAPITALS.search(self.text)
        return named[0] if named else ""


def terms(about: str) -> list[Term]:
    """Return the different names for its subject in a request: `Ana / my sister`, or one name in two scripts."""
    found: list[Term] = []
    for part in _ALTERNATIVES.split(_PREAMBLE.sub("", " ".join(_plain(about).split()), count=1)):
        scripts = _SCRIPT.findall(part)
        rest = " ".join(_SCRIPT.sub(" ", part).split()).strip(_EDGES)
        found += [Term(text) for text in [*scripts, rest] if text and (text != rest or _words(rest))]
    return found


# --- finding ---


def _name_pattern(name: str, *, any_case: bool = False) -> re.Pattern[str]:
    parts = [re.escape(part) for part in re.split(r"[\s_-]+", name)]
    if ord(name[0]) >= 0x2E80:  # scripts without blanks between words
        return re.compile(r"\s?".join(parts))
    joined, flags = r"[\s_-]?".join(parts), re.IGNORECASE if any_case or len(parts) > 1 else 0
    return re.compile(rf"(?<![\w@./-]){joined}(?![\w@-]|\.\w)", flags)


def _relation_pattern(noun: str) -> re.Pattern[str]:
    return re.compile(
        rf"\b(my|our|your|user's)\s+(?:[a-z]+,?\s+){{0,2}}?{re.escape(noun)}(?![\w-]| in[- ]law\b)", re.IGNORECASE
    )


# Between a relation and a name, or a name and a relation.
_CALLED: Final = r"(?:,? |'s name is | is called | is named | called | named | is |, called |, named | \()"
_PROPER: Final = r"([A-Z][a-z]\w*(?: [A-Z][a-z]\w*)?)"
# In "my brother likes Ana" she is no "likes" of the user's, nor in "my dentist knows Ana": the words between "my" and a
# relation are adjectives, and a relation does not end like a verb, unless it is one of these in the plural.
_NOUNS: Final = "|".join(
    sorted(
        _FEMALE | _MALE | _word_set("friend boss colleague cousin neighbour neighbor roommate flatmate partner cat dog")
    )
)
_BEFORE_NAME: Final = (
    rf"\b(?:my|our|your|user's)\s+(?:(?!(?:{_NOUNS})\b)[a-z]+\s+){{0,2}}?(?!(?:is|was|name|called|named)\b)"
    rf"((?:{_NOUNS})s|(?![a-z-]{{1,20}}(?:[^s]s|ed)\b)[a-z-]+)"
    r"(?:,|(?:'s name)? (?:is|was)(?: called| named)?,?|,? (?:called|named))?\s+\(?$"
)


class _Person:
    """The person who is asked for: their names, and their relations to the user."""

    def __init__(self, term: Term) -> None:
        self.names = [term.name] if term.name else []
        self.nouns = [term.relation] if term.relation else []
        self.asked_name, self.asked_noun = term.name, term.relation
        # Whether other people have the same first name, and whether the name is an ordinary word, too.
        self.is_shared = self.is_word = False

    @property
    def gender(self) -> int:
        """The number of the person's pronouns in `_PRONOUN`; 0 if the gender is not known."""
        return next((1 if noun in _FEMALE else 2 for noun in self.nouns if noun in _FEMALE | _MALE), 0)

    @property
    def first(self) -> str:
        """The first name, which a conversation uses once it has said who is meant."""
        return self.names[0].split()[0] if self.names else ""

    def is_certain(self, said: Said, text: str) -> bool:
        """Return whether a text makes clear that it means this person and nobody else with the same first name."""
        full = any(" " in name and _name_pattern(name).search(text) for name in self.names)
        return full or any(_relation_pattern(noun).search(text) and _is_theirs(noun, said, text) for noun in self.nouns)

    def others(self, text: str) -> set[tuple[str, str]]:
        """Return the surnames and relations that a text gives to other people with the same first name.

        Whoever has the full name is this person, whatever else the text calls them.
        """
        for name in self.names:
            text = _name_pattern(name).sub(" ", text) if " " in name else text
        surnames = {name.split()[-1] for name in self.names if " " in name}
        own = {("surname", one) for one in surnames} | {("relation", one) for one in self.nouns}
        return {one for one in _described(self.first, text) if one not in own} if self.first else set()

    def mention(self, said: Said, text: str) -> Reason | None:
        """Return why a text names the person, or None."""
        by_noun = any(_relation_pattern(noun).search(text) and _is_theirs(noun, said, text) for noun in self.nouns)
        if by_noun and not self._names_another(text):
            return "named" if self.asked_noun in self.nouns and self.asked_noun else "alias"
        for name in self.names:
            pattern = _name_pattern(name, any_case=not self.is_word)
            found = [one for one in pattern.finditer(text) if not _is_part(name, text, one)]
            if any(not (self.is_word and _begins_sentence(text, one)) for one in found):
                return "named" if name == self.asked_name else "alias"
        return None

    def _names_another(self, text: str) -> bool:
        """Return whether the relation is followed by another name: `my sister Bea`."""
        found = [name for noun in self.nouns for name in _names_of(noun, text)]
        return bool(self.names and found) and all(one.split()[0] != self.first for one in found)


def _is_theirs(noun: str, said: Said, text: str) -> bool:
    """Return whether a text means the user's sister: the user's "my", the assistant's "your", a memory's "User's"."""
    whose = {found[1].lower() for found in _relation_pattern(noun).finditer(text)}
    return bool(whose & ({"my", "our"} if said.role == "user" else {"your", "user's"})) or said.kind == "memory"


# So much text before a name is read: the word before it, and the end of the sentence before that word.
_NEAR_CHARACTERS: Final = 200


def _is_part(name: str, text: str, found: re.Match[str]) -> bool:
    """Return whether an occurrence is part of another name: `Santa Ana`."""
    if len(name.split()) > 1 or ord(name[0]) >= 0x370:
        return False
    prefix = text[max(0, found.start() - _NEAR_CHARACTERS) : found.start()]
    if not prefix[-1:].isspace() or prefix[-2:-1].isspace() or not prefix.strip():
        return False
    word = prefix.split()[-1]
    if not word[0].isupper() or word.strip(_EDGES) in _TITLES | _CALENDAR:
        return False
    begins = prefix[: -len(word) - 1].rstrip()
    return bool(begins) and begins[-1] not in ".!?:\n" and word[-1] not in ".!?,;:"


def _begins_sentence(text: str, found: re.Match[str]) -> bool:
    """Return whether an occurrence begins a sentence, where an ordinary word has a capital, too: `Will you come?`."""
    before, after = text[: found.start()].rstrip(), text[found.end() :]
    return (not before or before[-1] in ".!?:\n") and not re.match(r"'s | [A-Z]| (?:is|was|has|said)\b", after)


def _names_of(noun: str, text: str) -> list[str]:
    """Return the names that a text gives to `my sister`."""
    one = re.escape(noun)
    whose = r"\b(?i:my|our|your|user's)\s+(?:[a-z]+\s+){0,2}?"
    found = re.findall(rf"{whose}{one}{_CALLED}{_PROPER}", text)
    found += re.findall(rf"\b{_PROPER}(?:, | is | \(){whose}{one}\b(?!'s)", text)
    return [name for name in found if name.split()[0] not in _CALENDAR]


def _described(name: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield the surnames and relations that a text gives to this first name: ("surname", ...) or ("relation", ...)."""
    for found in _name_pattern(name).finditer(text):
        if _is_part(name, text, found):
            continue
        if (after := re.match(r" ([A-Z][a-z]\w+)", text[found.end() :])) and after[1] not in _CALENDAR:
            yield "surname", after[1]
        if before := re.search(_BEFORE_NAME, text[: found.start()], re.IGNORECASE):
            yield "relation", before[1].lower()
        if behind := re.match(
            r"(?:,| is| \() (?:my|your|User's) (?:[a-z]+ ){0,2}?([a-z-]+)\b(?!')", text[found.end() :]
        ):
            yield "relation", behind[1]


def find_about(about: str, read: Callable[[], Iterable[Said]]) -> Found:
    """Find the texts about something. `read` yields all texts, the texts of a session together and in order.

    It is called several times. Nothing is guessed: if several people are meant, only `people` is filled.
    """
    found, reasons = Found(), dict[tuple[str, str, str], tuple[Said, Reason]]()
    for term in terms(about):
        for said, reason in _of_term(_as_name(term, read), read, found.people):
            reasons.setdefault((said.kind, said.session, said.id), (said, reason))
    if not found.people and reasons:
        for said in read():
            key = (said.kind, said.session, said.id)
            if said.kind == "memory" and ("message", said.session, said.source) in reasons:
                reasons.setdefault(key, (said, "derived"))
        found.items = list(reasons.values())
    return found


def _of_term(term: Term, read: Callable[[], Iterable[Said]], people: list[str]) -> Iterable[tuple[Said, Reason]]:
    matches: list[tuple[Said, Reason]] = []
    if term.identifiers:
        matches = [(said, "named") for said in read() if _has_identifiers(term, said.content)]
    elif term.name or term.relation:
        person = _Person(term)
        if several := _learn(person, read):
            people += several
            return []
        matches = list(_about_person(person, read))
    return matches if matches or term.relation else _with_all_words(term, read)


def _as_name(term: Term, read: Callable[[], Iterable[Said]]) -> Term:
    """Return a term that was written in lower case as the name that it is in the texts, if it is one."""
    if term.name or term.relation or term.identifiers or len(term.text.split()) > 2 or not term.text.islower():
        return term
    as_name = re.compile(rf"\b{re.escape(term.text.title())}\b")
    as_words = re.compile(rf"\b{re.escape(term.text)}\b")
    texts = [text for said in read() if as_name.search(text := _plain(said.content)) or as_words.search(text)]
    return Term(term.text.title()) if texts and not any(map(as_words.search, texts)) else term


def _has_identifiers(term: Term, content: str) -> bool:
    tokens = _tokens(_plain(content))
    return all(
        one in tokens or ("/" in one and any(token.endswith(f"/{one}") for token in tokens)) for one in term.identifiers
    )


def _with_all_words(term: Term, read: Callable[[], Iterable[Said]]) -> list[tuple[Said, Reason]]:
    """Return the texts with all words of a term, or with all but one of at least four."""
    wanted = _words(term.text)
    near: dict[int, list[tuple[Said, Reason]]] = {0: [], 1: []}
    for said in read() if wanted else ():
        missing = len(wanted - _words(_plain(said.content)))
        if missing in near:
            near[missing].append((said, "named"))
    return near[0] or (near[1] if len(wanted) > 3 else [])


# Around a word in lower case that is no name: "I will", "a rose", "mark it".
_ORDINARY: Final = (
    r"\b(?:an?|the|[Ii]|you|we|they|he|she|it|not|no|this|that|please|would|can|could)\s{0}\b"
    r"|\b{0}\s(?:you|me|i|it|the|an?|we|that|be)\b"
)


def _learn(person: _Person, read: Callable[[], Iterable[Said]]) -> list[str]:
    """Learn the other ways in which texts call a person; return whom they may be, if these are several people."""
    asked, others = person.asked_noun, set[tuple[str, str]]()
    names: dict[str, str] = {}
    speakers = set[str]()
    for said in read():
        text = _plain(said.content)
        if asked and _relation_pattern(asked).search(text) and _is_theirs(asked, said, text):
            names |= {
                name.split()[0]: name
                for name in _names_of(asked, text)
                if len(name) >= len(names.get(name.split()[0], ""))
            }
            speakers |= {said.speaker} if said.role == "user" and said.speaker else set()
        if person.first and person.first in text:
            others |= person.others(text)
    if len(speakers) > 1:
        return [f"my {asked} (said by {speaker}: name the user)" for speaker in sorted(speakers)]
    if asked and not person.names:
        if len(names) > 1:
            return [f"my {asked} {name}" for name in sorted(names.values())]
        if names:
            person.names = list(names.values())
            others = {one for said in read() for one in person.others(_plain(said.content))}
    elif not asked and " " not in person.asked_name and len(others) > 1:
        described = [f"{person.first} {one}" if how == "surname" else f"my {one} {person.first}" for how, one in others]
        return sorted(described)
    elif not asked and " " not in person.asked_name:
        person.nouns += [one for how, one in others if how == "relation"]
        others = set()
    person.is_shared = bool(others)
    if person.first and person.first not in person.names:
        person.names.append(person.first)
    ordinary = re.compile(_ORDINARY.format(re.escape(person.first.lower())))
    person.is_word = person.first != "" and any(ordinary.search(_plain(said.content)) for said in read())
    return []


# After so long a pause a conversation does not go on about the same.
_PAUSE_MICROS: Final = 3_600 * 1_000_000
_SHORT_ANSWER_WORDS: Final = 6


def _about_person(person: _Person, read: Callable[[], Iterable[Said]]) -> Iterator[tuple[Said, Reason]]:
    for (kind, _), group in groupby(read(), key=lambda said: (said.kind, said.session)):
        texts = [(said, _plain(said.content)) for said in group]
        if kind == "memory":
            for said, text in texts:
                if (reason := person.mention(said, text)) and (not person.is_shared or person.is_certain(said, text)):
                    yield said, reason
        elif not person.is_shared or _tells_who(person, texts):
            yield from _in_session(person, texts)


def _tells_who(person: _Person, texts: Sequence[tuple[Said, str]]) -> bool:
    """Return whether a session speaks of this person, and of no other with the same first name."""
    return any(person.is_certain(*one) for one in texts) and not any(person.others(text) for _, text in texts)


def _in_session(person: _Person, texts: Sequence[tuple[Said, str]]) -> Iterator[tuple[Said, Reason]]:
    """Yield the messages that name a person, and those after them that go on about the person."""
    going_on, missed, asked, at, gender = False, 0, False, 0, person.gender
    for said, text in texts:
        reason = person.mention(said, text)
        pronoun = next((one for one in _PRONOUN.finditer(text) if gender in (0, one.lastindex)), None)
        if reason is None and (not going_on or said.at - at > _PAUSE_MICROS):
            going_on = False
            continue
        if reason is None and pronoun is not None and not _names_somebody(person, text[: pronoun.start()]):
            reason = "same conversation"
        elif reason is None and asked and len(text.split()) <= _SHORT_ANSWER_WORDS and "?" not in text:
            reason = "same conversation" if not _names_somebody(person, text) else None
        if reason is not None:
            yield said, reason
            going_on, missed, asked, at = True, 0, text.rstrip().endswith("?"), said.at
            gender = gender or (pronoun.lastindex or 0 if pronoun and pronoun.lastindex != 3 else 0)
        else:
            missed, asked = missed + 1, False
            going_on = missed < 2 and not _names_somebody(person, text)


def _names_somebody(person: _Person, text: str) -> bool:
    """Return whether a text has a name that is not the person's: a pronoun after it may mean somebody else."""
    own = {*_CALENDAR, *" ".join(person.names).split()}
    for found in re.finditer(r"\b[A-Z][a-z]+\b", text):
        before = text[: found.start()].rstrip()
        is_subject = re.match(r"'s | (?:is|was|has|said|called|came|told|and)\b", text[found.end() :])
        if found[0] not in own and ((before and before[-1] not in ".!?:\n") or is_subject):
            return True
    others = [one for one in re.finditer(r"\b[Mm]y [a-z]+", text) if one[0].split()[1] not in person.nouns]
    return bool(others)
