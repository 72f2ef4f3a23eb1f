"""What users say they are: name, age, home, work, relations, and what they have one of."""

from __future__ import annotations

import re
from typing import Final

from memory.memories.patterns import vocabulary as words
from memory.memories.patterns.matching import ADVERB, END, I_AM, IS, VALUE, Hit, Rule, rule
from memory.memories.patterns.statement import Statement
from memory.memories.patterns.values import as_subject, is_name, is_plain

# `the north of ...` is no part of the name that a place has.
_BEFORE_PLACE = re.compile(
    r"^(?:the|upstate|downtown|northern|southern|eastern|western|central"
    r"|a (?:city|town|suburb|village) (?:near|outside)(?: of)?)\s+",
    re.IGNORECASE,
)
_LIST = re.compile(r"[\w-]+(?: [\w-]+)?(?:, [\w-]+(?: [\w-]+)?)*,? (?:and|or) [\w-]+(?: [\w-]+)?(?=\s*(?:$|[.!;)]))")
# Another job, and not what else one does.
_OTHER_DOING = re.compile(r"\sand\s(?!(?:an?\s)?(?:[\w-]+\s)?\w+(?:er|or|ist|ian|ant|chef|nurse)\b)")
_AFTER_LONE_NAME = re.compile(r"\s*(?:$|[,;]|(?:btw|by the way)\b|and (?:i|i'm|my)\b)", re.IGNORECASE)
_AFTER_PLACE = re.compile(r"\s(?:for|with|from|in|last|this|about|a|two|three|to|after|recently|\d)\b")


def _fact(hit: Hit, key: str, value: str, content: str, *, importance: float = 0.7, quote: str = "") -> Statement:
    same = words.SAME.get(key, key)
    return Statement(
        content=content, kind="fact", quote=quote or hit.quote(), subject=same, confidence=0.9, importance=importance,
        lifetime="long_term", key=same, value=value,
    )  # fmt: skip


def _one_of_several(hit: Hit, key: str, value: str, content: str) -> Statement:
    """A fact of which there may be more than one: nothing takes its place."""
    return Statement(
        content=content, kind="fact", quote=hit.quote(), subject=f"{key} {as_subject(value)}", confidence=0.9,
        importance=0.6, lifetime="long_term",
    )  # fmt: skip


def _whole(hit: Hit, key: str, content: str, *, importance: float = 0.7) -> Statement:
    return _fact(hit, key, hit.whole, content, importance=importance, quote=hit.quote(hit.whole))


def _is_place(value: str) -> bool:
    return is_name(_BEFORE_PLACE.sub("", value))


def _is_lone_name(hit: Hit) -> bool:
    """A name in small letters is one only if nothing follows that could belong to it: `my name is ana`."""
    seen = hit.seen
    return (
        _AFTER_LONE_NAME.match(hit.found["value"].strip()[len(seen) :]) is not None
        and len(seen) > 1
        and seen.isalpha()
        and is_plain(seen)
        and seen not in words.NO_LONE_NAMES
        and not seen.endswith(("ed", "ing"))
    )


def _name_of_user(hit: Hit) -> Statement | None:
    if not (is_name(hit.seen) or _is_lone_name(hit)):
        return None
    return _fact(hit, hit.key, hit.value, f"User's {hit.key} is {hit.value}.", importance=0.8)


def _called(hit: Hit) -> Statement | None:
    if not is_name(hit.seen):
        return None
    return _fact(hit, "called", hit.value, f"User wants to be called {hit.value}.", importance=0.8)


def _email(hit: Hit) -> Statement:
    kind = " ".join((hit.found["kind"] or "").lower().split())
    key = f"{kind} email" if kind not in ("", "new") else "email"
    return _whole(hit, key, f"User's {key} address is {hit.whole}.")


def _dated(hit: Hit) -> Statement:
    return _whole(hit, hit.key, f"User's {hit.key} is {hit.whole}.")


def _attribute(hit: Hit) -> Statement | None:
    # `Far away` or `bankrupt` say something of it; what it is has a name.
    is_named = hit.key not in words.ALWAYS_NAMED or any(map(str.isupper, hit.seen))
    if not is_plain(hit.seen, most_words=4) or not is_named:
        return None
    return _fact(hit, hit.key, hit.value, f"User's {hit.written_key} is {hit.value}.")


def _several(hit: Hit) -> Statement | None:
    value, quote = _listed(hit)
    if not is_plain(value) or re.search(r"\b(?:me|my)\b", value):
        return None
    return _fact(hit, hit.key, value, f"User's {hit.key} are {value}.", quote=quote)


def _listed(hit: Hit) -> tuple[str, str]:
    """A value with all that is listed in it (`pollen, dust and nuts`), and the quotation that ends with it."""
    found = _LIST.match(hit.found["value"])
    if found is None:
        return hit.value, hit.quote()
    start = hit.found.start("value")
    value = hit.clause.words(start, start + found.end())
    return value, hit.quote(value)


def _thing_owned(hit: Hit) -> Statement | None:
    # A make or a model has a capital or a digit; `a mess` and `a bit slow` have neither.
    if not is_plain(hit.seen, most_words=6) or not re.match(
        r"(?i:an?)\s(?:.*\b[A-Z]|.*\b[A-Za-z]+\d|(?:19|20)\d\d\b)", hit.seen
    ):
        return None
    return _fact(hit, hit.key, hit.value, f"User's {hit.key} is {hit.value}.", importance=0.6)


def _numbered(hit: Hit) -> Statement:
    return _whole(hit, hit.key, f"User's {hit.key} is {hit.whole.strip()}.")


def _pronouns(hit: Hit) -> Statement:
    return _whole(hit, "pronouns", f"User's pronouns are {hit.whole}.")


def _relation_named(hit: Hit) -> Statement | None:
    if not is_name(hit.seen):
        return None
    key, content = f"{hit.key}'s name", f"User's {hit.key}'s name is {hit.value}."
    if hit.key in words.SEVERAL:
        return _one_of_several(hit, key, hit.value, content)
    return _fact(hit, key, hit.value, content, importance=0.6)


def _has_a_pet(hit: Hit) -> Statement | None:
    if not is_name(hit.seen):
        return None
    return _one_of_several(hit, f"{hit.key}'s name", hit.value, f"User's {hit.key}'s name is {hit.value}.")


def _relation_born(hit: Hit) -> Statement:
    key, content = f"{hit.key}'s birthday", f"User's {hit.key}'s birthday is {hit.whole}."
    if hit.key in words.SEVERAL:
        return _one_of_several(hit, key, hit.whole, content)
    return _whole(hit, key, content, importance=0.6)


def _relation_works(hit: Hit) -> Statement:
    key, content = f"{hit.key}'s job", f"User's {hit.key} is {hit.whole}."
    if hit.key in words.SEVERAL:
        return _one_of_several(hit, key, hit.whole, content)
    return _whole(hit, key, content, importance=0.5)


def _lives(hit: Hit) -> Statement | None:
    # With whom is another matter; `in winter` or `for now` is not.
    place = re.split(r"\swith\s", hit.value)[0]
    return _fact(hit, "lives in", place, f"User lives in {place}.") if _is_place(place) else None


def _moved(hit: Hit) -> Statement | None:
    place = _AFTER_PLACE.split(hit.value)[0]
    if re.match(words.NO_PLACES, hit.value, re.IGNORECASE):
        return None
    return _fact(hit, "lives in", place, f"User moved to {hit.value}.") if _is_place(place) else None


def _from(hit: Hit) -> Statement | None:
    if not _is_place(hit.seen):
        return None
    return _fact(hit, "from", hit.value, f"User is from {hit.value}.", importance=0.6)


def _works_as(hit: Hit) -> Statement | None:
    is_job = is_plain(hit.seen) and not re.match(r"an?\s(?:team|unit|couple|group|whole|charm|result)\b", hit.seen)
    job = _OTHER_DOING.split(hit.value)[0]
    return _fact(hit, "job", job, f"User works as {job}.", quote=hit.quote(job)) if is_job else None


def _works_at(hit: Hit) -> Statement | None:
    # As what is another matter.
    place = re.split(r"\sas\s", hit.value)[0]
    if not (is_name(place) or (re.match(r"an?\s", place) and is_plain(hit.seen))):
        return None
    return _fact(hit, "works at", place, f"User works {hit.found['at'].lower()} {place}.")


def _works_in(hit: Hit) -> Statement:
    return _whole(hit, "works in", f"User works in {hit.whole}.")


def _profession(hit: Hit) -> Statement:
    return _whole(hit, "job", f"User is {hit.whole}.")


def _age(hit: Hit) -> Statement:
    return _whole(hit, "age", f"User is {hit.whole} years old.", importance=0.6)


def _condition(hit: Hit) -> Statement:
    return Statement(
        content=f"User is {hit.whole}.", kind="fact", quote=hit.quote(hit.whole), subject=as_subject(hit.whole),
        confidence=0.9, importance=0.8, lifetime="long_term", tags=("health",),
    )  # fmt: skip


def _allergic(hit: Hit) -> Statement | None:
    value, quote = _listed(hit)
    if not is_plain(value, most_words=6) or re.search(words.NO_ALLERGENS, value, re.IGNORECASE):
        return None
    return Statement(
        content=f"User is allergic to {value}.", kind="fact", quote=quote,
        subject=f"allergic to {as_subject(value)}", confidence=0.95, importance=0.9, lifetime="long_term",
        tags=("health",),
    )  # fmt: skip


_NAMED: Final = r"(?:'s name(?:'s| is)(?: now)?|(?:'s| is)(?: now)? (?:called|named))\s+"
_DAYS: Final = r"birthday|birth date|date of birth|wedding anniversary"
_ADDRESS: Final = r"(?P<value>[\w.+-]+@[\w-]+(?:\.[\w-]+)+)"
RULES: Final[tuple[Rule, ...]] = (
    rule(rf"my (?P<key>{words.ATTRIBUTES_OF_NAMES}){IS}{VALUE}", _name_of_user),
    rule(rf"(?:from now on,?\s+)?(?:(?:please|just|you can|you may|feel free to)\s+)*call me\s+{VALUE}", _called),
    rule(rf"my (?:(?P<kind>new|work|personal|private)\s+)?e-?mail(?: address)?{IS}{_ADDRESS}", _email),
    rule(rf"my (?P<key>{_DAYS}){IS}(?:on )?(?P<value>{words.DATE}){END}", _dated),
    rule(rf"my (?:current )?(?P<key>{words.ATTRIBUTES}){IS}{VALUE}", _attribute),
    rule(rf"my (?P<key>hobbies|allergies|dietary restrictions) are\s+{VALUE}", _several),
    rule(rf"my (?:(?:current|new)\s+)?(?P<key>{words.OWNED_THINGS}){IS}{VALUE}", _thing_owned),
    rule(rf"my (?:(?:current|new|home|postal)\s+)?(?P<key>address){IS}(?P<value>(?-i:{words.STREET})){END}", _numbered),
    rule(
        rf"my (?:(?:new|mobile|cell)\s+)?(?P<key>phone number){IS}(?P<value>\+?\d[\d ()/-]{{5,18}}\d){END}", _numbered
    ),
    rule(
        rf"my (?P<key>height|weight){IS}(?P<value>\d[\d.,']*\s?(?:cm|m|kg|lbs?|pounds|kilos|feet|ft)){END}", _numbered
    ),
    rule(rf"my pronouns are\s+(?P<value>\w+/\w+(?:/\w+)?){END}", _pronouns),
    rule(
        rf"my (?P<key>{words.RELATIONS}|{words.PETS}){_NAMED}{VALUE}",
        _relation_named,
    ),
    rule(
        rf"my (?P<key>{words.NAMED_THINGS}){_NAMED}{VALUE}",
        _relation_named,
    ),
    rule(rf"my (?P<key>{words.RELATIONS}){IS}(?P<value>(?-i:Dr|Prof|Mrs?|Ms)\.?\s.*)", _relation_named),
    rule(rf"my (?P<key>{words.RELATIONS})'s birthday{IS}(?:on )?(?P<value>{words.DATE}){END}", _relation_born),
    rule(
        rf"i have an? (?:\w+ ){{0,2}}(?P<key>{words.PETS})(?:,? (?:called|named)|,? whose name is)\s+{VALUE}",
        _has_a_pet,
    ),
    rule(rf"my (?:job|profession|occupation|day job){IS}(?P<value>an?\s+{words.PROFESSIONS}){END}", _profession),
    rule(
        rf"i have an? (?:(?:severe|mild|bad|serious|strong)\s+)?(?P<value>(?!{words.NO_ALLERGY_TO})[a-z]+(?: [a-z]+)?)"
        r" allergy(?! to)",
        _allergic,
    ),
    rule(rf"my (?P<key>{words.RELATIONS}){IS}(?P<value>an?\s+{words.PROFESSIONS}){END}", _relation_works),
    rule(rf"{I_AM}{ADVERB}(?:(?:severely|highly|deathly|very|a bit|mildly)\s+)?allergic to\s+{VALUE}", _allergic),
    rule(rf"i have an? (?:(?:severe|mild|bad|serious)\s+)?allergy to\s+{VALUE}", _allergic),
    rule(rf"(?:i {ADVERB}live|{I_AM}{ADVERB}(?:living|based)) in\s+{VALUE}", _lives),
    rule(rf"i(?:'ve| have)?\s+(?:(?:just|recently|now)\s+)?moved to\s+{VALUE}", _moved),
    rule(rf"(?:{I_AM}{ADVERB}(?:originally )?|i (?:originally )?come )from\s+{VALUE}", _from),
    rule(rf"(?:i {ADVERB}work|{I_AM}{ADVERB}working) as\s+(?P<value>an?\s+\S.*)", _works_as),
    rule(rf"(?:i {ADVERB}work|{I_AM}{ADVERB}(?:working|employed)) (?P<at>at|for)\s+{VALUE}", _works_at),
    rule(rf"(?:i {ADVERB}work|{I_AM}{ADVERB}working) in\s+(?P<value>{words.INDUSTRIES}){END}", _works_in),
    rule(rf"{I_AM}{ADVERB}(?P<value>an?\s+{words.PROFESSIONS}){END}", _profession),
    rule(rf"{I_AM}{ADVERB}(?P<value>(?:an? )?{words.DIETS}){END}", _condition),
    rule(rf"{I_AM}{ADVERB}(?P<value>\d{{1,3}})(?: years? old\b| y/?o\b|(?=\s*(?:$|[,.!])))", _age),
)
