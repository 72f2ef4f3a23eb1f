"""Patterns for facts about users: name, age, home, work, relations, and things of which they have one."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from memory.memories.patterns import vocabulary as words
from memory.memories.patterns.matching import (
    ADVERB,
    BLANKS,
    COVER,
    END,
    I_AM,
    IS,
    REST,
    VALUE,
    Anchored,
    PatternMatch,
    Rule,
    Sentence,
    Statement,
    as_subject,
    is_name,
    is_plain,
    rule,
    rules,
)
from memory.memories.patterns.told import in_third_person, whole
from storage.recall.chunk_sources import HOME

# `the north of ...` is not part of the name of a place.
_BEFORE_PLACE = re.compile(
    r"^(?:the|upstate|downtown|northern|southern|eastern|western|central|a (?:city|town|suburb|village) (?:near"
    r"|outside)(?: of)?)\s{1,3}",
    re.IGNORECASE,
)
_LIST = re.compile(
    r"\A[\w-]{1,40}(?: [\w-]{1,40})?(?:, [\w-]{1,40}(?: [\w-]{1,40})?){0,20},? (?:and"
    r"|or) [\w-]{1,40}(?: [\w-]{1,40})?(?=\s{0,3}(?:$|[.!;)]))"
)
# What follows `and` is something else that the user does, not a second job.
_OTHER_DOING = re.compile(r"\sand\s(?!(?:an?\s)?(?:[\w-]{1,40}\s)?\w{1,40}(?:er|or|ist|ian|ant|chef|nurse)\b)")
_AFTER_LONE_NAME = re.compile(r"\A\s{0,3}(?:$|[,;]|(?:btw|by the way)\b|and (?:i|i'm|my)\b)", re.IGNORECASE)
_CALLED_SO = re.compile(r"\b(?:name(?:'s| is)(?: now)?|called|named)\s{1,3}\Z", re.IGNORECASE)
_AFTER_PLACE = re.compile(r"\s(?:for|with|from|in|last|this|about|a|two|three|to|after|recently|\d)\b")


def _fact(
    match: PatternMatch, key: str, value: str, content: str, *, importance: float = 0.7, quote: str = ""
) -> Statement:
    same = words.SYNONYMS.get(key, key)
    return Statement(
        content=content, kind="fact", quote=quote or match.quote(), subject=same, confidence=0.9, importance=importance,
        lifetime="long_term", key=same, value=value,
    )  # fmt: skip


def _one_of_several(match: PatternMatch, key: str, value: str, content: str) -> Statement:
    """Return a fact that a user may have several of: a fact with another value does not supersede it."""
    return Statement(
        content=content, kind="fact", quote=match.quote(), subject=f"{key} {as_subject(value)}", confidence=0.9,
        importance=0.6, lifetime="long_term",
    )  # fmt: skip


def _whole(match: PatternMatch, key: str, content: str, *, importance: float = 0.7) -> Statement:
    return _fact(match, key, match.whole, content, importance=importance, quote=match.quote(match.whole))


# Nobody has been older than 122 years.
_MAX_AGE: Final = 122
# Where people live in a manner of speaking, and what they are moved to other than a town.
_NO_TOWN = re.compile(
    r"(?:mars|jupiter|venus|narnia|hogwarts|neverland|wonderland|gotham|heaven|hell|space"
    r"|fear|hope|peace|denial|sin|harmony|luxury|poverty|exile|limbo|chaos|misery|squalor|reality|darkness|silence"
    r"|love|pain|pajamas|pyjamas|jeans|shorts|leggings|hoodies|(?:\w{1,15} )?(?:times|\w{0,10}pants)|meetings|recovery"
    r"|town|campus|student|suburbia|dorms|separate|different|constant|sales|marketing|management|finance|remote"
    r"|tears|nights|days|part|full|bed|plan|another|my|an?|the|our|your|their|this|that|these|those|some|one|two"
    r"|[a-z]{1,20}(?:ment|ing|ly|tion|ness))\b"
)
_LOWER_CASE_TOWN = re.compile(r"[a-z]{3,15}(?: [a-z]{3,15})?\Z")


def _is_place(value: str, clause: str = "") -> bool:
    """Return whether a value is the name of a place; in lower case only from a writer who uses no capitals."""
    is_lower = clause == clause.lower() and _LOWER_CASE_TOWN.match(value) and not _NO_TOWN.match(value)
    return is_name(_BEFORE_PLACE.sub("", value)) or (bool(clause) and bool(is_lower))


def _is_lone_name(match: PatternMatch) -> bool:
    """Return whether a lower-case value is a name: nothing may follow that could belong to it (`my name is ana`)."""
    covered_value = match.covered_value
    return (
        _AFTER_LONE_NAME.match(match.regex_match["value"].strip()[len(covered_value) :]) is not None
        and len(covered_value) > 1
        and covered_value.isalpha()
        and is_plain(covered_value)
        and covered_value not in words.NO_LONE_NAMES
        and not covered_value.endswith(("ed", "ing"))
    )


def _name_of_user(match: PatternMatch) -> Statement | None:
    if not (is_name(match.covered_value) or _is_lone_name(match)):
        return None
    return _fact(match, match.key, match.value, f"User's {match.key} is {match.value}.", importance=0.8)


def _introduced(match: PatternMatch) -> Statement | None:
    is_known = is_name(match.whole) and match.whole.lower() not in words.REFERRING_STARTS
    return _whole(match, "name", f"User's name is {match.whole}.", importance=0.8) if is_known else None


def _called(match: PatternMatch) -> Statement | None:
    if not is_name(match.covered_value):
        return None
    fact = _fact(match, "called", match.value, f"User wants to be called {match.value}.", importance=0.8)
    return replace(fact, kind="instruction")


def _email(match: PatternMatch) -> Statement:
    kind = " ".join((match.regex_match["kind"] or "").lower().split())
    key = f"{kind} email" if kind not in ("", "new") else "email"
    return _whole(match, key, f"User's {key} address is {match.whole}.")


def _important_date(match: PatternMatch) -> Statement:
    return _whole(match, match.key, f"User's {match.key} is {match.whole}.")


def _attribute(match: PatternMatch) -> Statement | None:
    # An employer that is `far away` or `bankrupt` is described but not named: these attributes need a name.
    is_named = match.key not in words.ALWAYS_NAMED or any(map(str.isupper, match.covered_value))
    if not is_plain(match.covered_value, max_words=4) or not is_named:
        return None
    return _fact(match, match.key, match.value, f"User's {match.written_key} is {match.value}.")


def _several(match: PatternMatch) -> Statement | None:
    value, quote = _listed(match)
    if not is_plain(value) or re.search(r"\b(?:me|my)\b", value):
        return None
    return _fact(match, match.key, value, f"User's {match.key} are {value}.", quote=quote)


def _listed(match: PatternMatch) -> tuple[str, str]:
    """Return a value with everything listed in it (`pollen, dust and nuts`), and the quote that ends with it."""
    found = _LIST.match(match.regex_match["value"])
    if found is None:
        return match.value, match.quote()
    start = match.regex_match.start("value")
    value = match.clause.words(start, start + found.end())
    return value, match.quote(value)


def _thing_owned(match: PatternMatch) -> Statement | None:
    # A make or model has a capital letter or a digit; `a mess` and `a bit slow` have neither.
    if not is_plain(match.covered_value, max_words=6) or not re.match(
        r"\A(?i:an?)\s(?:.{0,400}[A-Z]|.{0,400}\b[A-Za-z]{1,40}\d|(?:19|20)\d\d\b)", match.covered_value
    ):
        return None
    return _fact(match, match.key, match.value, f"User's {match.key} is {match.value}.", importance=0.6)


def _numbered(match: PatternMatch) -> Statement:
    return _whole(match, match.key, f"User's {match.key} is {match.whole.strip()}.")


def _pronouns(match: PatternMatch) -> Statement:
    pronouns = _whole(match, "pronouns", f"User's pronouns are {match.whole}.")
    return replace(pronouns, kind="instruction", importance=0.8)


def _relation_named(match: PatternMatch) -> Statement | None:
    if not (is_name(match.covered_value) or (_CALLED_SO.search(match.quote("")) and _is_lone_name(match))):
        return None
    return named(match.key, match.value if is_name(match.value) else match.value.capitalize(), match.quote())


def named(who: str, name: str, quote: str, *, several: bool = False) -> Statement:
    """Return the name of a relative or a pet as a fact, of which there may be `several`."""
    key = words.SYNONYMS.get(f"{who}'s name", f"{who}'s name")
    is_one = who not in words.NOT_UNIQUE and not several
    written = "GP" if who == "gp" else who
    return Statement(
        content=f"User's {written}'s name is {name}.", kind="fact", quote=quote, confidence=0.9, importance=0.6,
        subject=key if is_one else f"{key} {as_subject(name)}", lifetime="long_term",
        key=key if is_one else None, value=name if is_one else None,
    )  # fmt: skip


def _has_a_pet(match: PatternMatch) -> Statement | None:
    name = match.value.removesuffix(" there").capitalize() if match.value.islower() else match.value
    if not is_name(name):
        return None
    return _one_of_several(match, f"{match.key}'s name", name, f"User's {match.key}'s name is {name}.")


def _relation_born(match: PatternMatch) -> Statement:
    key, content = f"{match.key}'s birthday", f"User's {match.key}'s birthday is {match.whole}."
    if match.key in words.NOT_UNIQUE:
        return _one_of_several(match, key, match.whole, content)
    return _whole(match, key, content, importance=0.6)


def _relation_works(match: PatternMatch) -> Statement:
    key, content = f"{match.key}'s job", f"User's {match.key} is {match.whole}."
    if match.key in words.NOT_UNIQUE:
        return _one_of_several(match, key, match.whole, content)
    return _whole(match, key, content, importance=0.5)


def _lives(match: PatternMatch) -> Statement | None:
    # A companion (`with Sam`) is left out; `in winter` or `for now` is not.
    place = re.split(r"\swith\s", match.value)[0]
    return _fact(match, HOME, place, f"User lives in {place}.") if _is_place(place, match.clause.text) else None


def _moved(match: PatternMatch) -> Statement | None:
    place = _AFTER_PLACE.split(match.value)[0]
    if re.match(words.NO_PLACES, match.value, re.IGNORECASE):
        return None
    # Not in lower case: people move to decaf, too.
    return _fact(match, HOME, place, f"User moved to {match.value}.") if _is_place(place) else None


def _from(match: PatternMatch) -> Statement | None:
    if not _is_place(match.covered_value):
        return None
    return _fact(match, "from", match.value, f"User is from {match.value}.", importance=0.6)


def _works_as(match: PatternMatch) -> Statement | None:
    is_job = is_plain(match.covered_value) and not re.match(
        r"an?\s(?:team|unit|couple|group|whole|charm|result)\b", match.covered_value
    )
    job = _OTHER_DOING.split(match.value)[0]
    return _fact(match, "job", job, f"User works as {job}.", quote=match.quote(job)) if is_job else None


def _works_at(match: PatternMatch) -> Statement | None:
    # A job after the place (`as a nurse`) is left out.
    place = re.split(r"\sas\s", match.value)[0]
    if not (is_name(place) or (re.match(r"an?\s", place) and is_plain(match.covered_value))):
        return None
    return _fact(match, "works at", place, f"User works {match.regex_match['at'].lower()} {place}.")


def _works_in(match: PatternMatch) -> Statement:
    return _whole(match, "works in", f"User works in {match.whole}.")


def _profession(match: PatternMatch) -> Statement:
    return _whole(match, "job", f"User is {match.whole}.")


def _age(match: PatternMatch) -> Statement | None:
    if match.whole.isdecimal() and int(match.whole) > _MAX_AGE:
        return None
    return _whole(match, "age", f"User is {match.whole} years old.", importance=0.6)


def _condition(match: PatternMatch) -> Statement:
    # Whatever is asked, an agent should not propose what somebody does not eat: every context has a diet.
    is_diet = re.search(rf"\b{words.DIETS}\b", match.whole, re.IGNORECASE) is not None
    return Statement(
        content=f"User is {in_third_person(match.whole)}.", kind="preference" if is_diet else "fact",
        quote=match.quote(match.whole), subject=as_subject(match.whole),
        confidence=0.9, importance=0.8, lifetime="long_term", tags=("health",),
    )  # fmt: skip


def _illness(match: PatternMatch) -> Statement:
    return replace(_condition(match), content=f"User has {match.whole}.")


def _condition_since(match: PatternMatch) -> Statement:
    since = match.regex_match["since"]
    condition = _condition(match)
    return replace(condition, content=f"User has been {match.whole}{since}.", quote=condition.quote + since)


def _allergic(match: PatternMatch) -> Statement | None:
    value, quote = _listed(match)
    counted = words.COUNTED_ALLERGENS.search(value)
    if counted is not None:
        value = f"{value}s"
    if not is_plain(value, max_words=6) or re.search(words.NO_ALLERGENS, value, re.IGNORECASE):
        return None
    is_not = "not " if match.regex_match.groupdict().get("no") else ""
    return Statement(
        content=f"User is {is_not}allergic to {value}.", kind="preference", quote=quote,
        subject=f"allergic to {as_subject(value)}", confidence=0.95, importance=0.7 if is_not else 0.9,
        lifetime="long_term", tags=("health",),
    )  # fmt: skip


_NAMED: Final = r"(?:'s name(?:'s| is)(?: now)?|(?:'s| is)(?: now)? (?:called|named))\s{1,3}"
_DAYS: Final = r"birthday|birth date|date of birth|(?:wedding )?anniversary"
_ADDRESS: Final = r"(?P<value>[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5})"
# Facts that are instructions, too, because every answer needs them: they are found with the instructions only.
HOW_TO_ADDRESS: Final[tuple[Rule, ...]] = (
    rule(
        rf"(?:(?:from now on,?{BLANKS})?(?:(?:please|just|you can|you may|feel free to){BLANKS}){{0,5}}call me|i go by"
        r"|(?:people|everyone|everybody|my friends|friends) calls? me)"
        rf"{BLANKS}{VALUE}",
        _called,
    ),
    rule(rf"my pronouns are{BLANKS}(?P<value>\w{{1,40}}/\w{{1,40}}(?:/\w{{1,40}})?){END}", _pronouns),
)
# Names of the user's own: when I say "the lab", I mean the garage; by "the kids" I mean my dogs.
_NAME_FOR: Final = (
    rf"(?P<word>{COVER}{{3,40}}|(?:the|my|our) [a-z][\w'-]{{1,20}}(?: [a-z][\w'-]{{1,20}})?|(?-i:[A-Z]{{2,8}}))"
)
_FOR_WHAT: Final = r"(?P<meaning>(?:the|my|our|an?|(?-i:[A-Z]))[\w ,&/'-]{2,80})"
_MEANS: Final = (
    Anchored(
        rf"(?:when(?:ever)? i (?:say|write|type|talk about|mention)|by){BLANKS}{_NAME_FOR},?{BLANKS}"
        rf"i(?: always)? mean{BLANKS}{_FOR_WHAT}"
    ),
    Anchored(
        rf"(?P<word>{COVER}{{3,40}}) is (?:what i call(?= (?:the|my|our)\b)|my (?:name|word) for"
        rf"(?! the (?:day|week|month|year)\b)){BLANKS}{_FOR_WHAT}"
    ),
)


def means(sentence: Sentence) -> Statement | None:
    """Return what the user means by a name of their own."""
    found = next((found for pattern in _MEANS if (found := pattern.match(sentence.text)) is not None), None)
    if found is None:
        return None
    start, end = found.span("meaning")
    meaning = whole(sentence.words(start, end))
    word = sentence.words(*found.span("word")).strip("\"\u201c\u201d'")
    if not is_plain(re.sub(r"\b(?:my|our) ", "", meaning), max_words=14):
        return None
    # "When I say the truth, I mean the whole truth" only stresses it.
    if not {"that", "this", *as_subject(meaning).split()}.isdisjoint(as_subject(word).split()[-1:]):
        return None
    return Statement(
        content=f'User means {in_third_person(meaning)} by "{word}".', kind="fact",
        quote=sentence.words(0, start + len(meaning)), subject=f"means by {as_subject(word)}", confidence=0.9,
        importance=0.7, lifetime="long_term",
    )  # fmt: skip


RULES: Final[tuple[Rule, ...]] = (
    rule(rf"my (?P<key>{words.ATTRIBUTES_OF_NAMES}){IS}{VALUE}", _name_of_user),
    rule(
        rf"{I_AM}(?!{words.NATIONALITY}\b|{words.RELIGION}\b)"
        r"(?P<value>(?-i:[A-Z][a-z]{1,20}(?: [A-Z][a-z]{1,20})?))"
        rf"(?=, (?:an? |the |your )?(?:[a-z]{{2,20}} ){{0,2}}{words.PROFESSIONS}\b|,? and (?:i'm|i am) (?:an? |\d)"
        rf"|, (?:\d\d|from (?-i:[A-Z])\w{{1,20}})\b)",
        _introduced,
    ),
    rule(rf"my (?:(?P<kind>new|work|personal|private){BLANKS})?e-?mail(?: address)?{IS}{_ADDRESS}", _email),
    rule(rf"(?:my|our) (?P<key>{_DAYS}){IS}(?:on )?(?P<value>{words.DATE}){END}", _important_date),
    rule(rf"my (?:current )?(?P<key>{words.ATTRIBUTES}){IS}{VALUE}", _attribute),
    rule(rf"my (?P<key>hobbies|allergies|dietary restrictions) are{BLANKS}{VALUE}", _several),
    rule(rf"(?:my|our) (?:(?:current|new){BLANKS})?(?P<key>{words.OWNED_THINGS}){IS}{VALUE}", _thing_owned),
    *rules(
        _numbered,
        rf"(?:my|our) (?:(?:current|new|home|postal){BLANKS})?(?P<key>address){IS}(?P<value>(?-i:{words.STREET}))"
        rf"{END}",
        rf"my (?:(?:new|mobile|cell){BLANKS})?(?P<key>(?:(?:phone|mobile|cell"
        rf"|telephone) )?number){IS}(?P<value>\+?\d[\d ()/-]{{5,18}}\d){END}",
    ),
    *rules(
        _relation_named,
        rf"(?:my|our|the(?= (?:dog|cat|puppy|kitten))) (?P<key>{words.RELATIONS}|{words.PETS}){_NAMED}{VALUE}",
        rf"my (?P<key>{words.NAMED_THINGS}){_NAMED}{VALUE}",
        rf"my (?:new{BLANKS})?(?P<key>{words.RELATIONS}|gp|[a-z]{{3,20}}(?:ist|ian)){IS}"
        r"(?P<value>(?-i:(?:Dr|Prof|Mrs?|Ms)\.?\s[A-Z][\w'-]{1,30}(?: [A-Z][\w'-]{1,30})?))",
        rf"(?:my|our) (?:new{BLANKS})?(?P<key>{words.RELATIONS}){IS}(?!{words.NATIONALITY}\b|{words.RELIGION}\b)"
        rf"(?P<value>(?-i:[A-Z][a-z]{{1,20}}(?: [A-Z][a-z]{{1,20}})?)){END}",
        rf"(?P<value>(?-i:[A-Z][a-z]{{1,20}})), my (?P<key>{words.RELATIONS}),",
    ),
    rule(
        rf"my (?P<key>{words.RELATIONS})'s (?:birthday|bday){IS}(?:on )?"
        rf"(?P<value>{words.DATE}|the \d{{1,2}}(?:st|nd|rd|th)(?! \w+day)){END}",
        _relation_born,
    ),
    rule(
        rf"(?:(?:i|we) have|(?:i|we)'ve got) an? (?:\w{{1,40}} ){{0,2}}(?P<key>{words.PETS})(?:,? (?:called|named)"
        rf"|,? whose name is){BLANKS}{VALUE}",
        _has_a_pet,
    ),
    rule(rf"my (?:job|profession|occupation|day job){IS}(?P<value>an?{BLANKS}{words.PROFESSIONS}){END}", _profession),
    rule(rf"my (?P<key>{words.RELATIONS}){IS}(?P<value>an?{BLANKS}{words.PROFESSIONS}){END}", _relation_works),
    *rules(
        _allergic,
        rf"i(?: have|'ve got) an? (?:(?:severe|mild|bad|serious"
        rf"|strong){BLANKS})?(?P<value>(?!{words.NO_ALLERGY_TO})[a-z]{{1,40}}(?: [a-z]{{1,40}})?)"
        r" allergy(?! to)",
        rf"{I_AM}{ADVERB}(?P<no>(?:not|no longer){BLANKS})?"
        rf"(?:(?:actually|severely|highly|deathly|very|a bit|mildly){BLANKS})?allergic to{BLANKS}{VALUE}",
        rf"i(?: have|'ve got) an? (?:(?:severe|mild|bad|serious){BLANKS})?allergy to{BLANKS}{VALUE}",
        rf"(?P<no>i(?:'ve| have)?{BLANKS}{ADVERB}(?:outgr[eo]wn?|grown out of)){BLANKS}my{BLANKS}"
        rf"(?P<value>[a-z]{{1,40}}(?: [a-z]{{1,40}})?) allergy{END}",
        rf"my{BLANKS}(?P<value>[a-z]{{1,40}}(?: [a-z]{{1,40}})?) allergy (?P<no>(?:is|has|went){BLANKS}{ADVERB}"
        rf"(?:over|gone|disappeared|cleared up|away)){END}",
    ),
    rule(
        rf"(?:(?:i|we) {ADVERB}live|(?:{I_AM}|we(?:'re| are){BLANKS}){ADVERB}(?:living|based)) in{BLANKS}"
        rf"(?!an? (?:[a-z-]{{1,20}} ){{0,3}}{words.DWELLINGS}){VALUE}",
        _lives,
    ),
    rule(
        rf"(?:{I_AM}|we(?:'re| are){BLANKS}){ADVERB}in{BLANKS}"
        r"(?!(?:team|group|class|year|grade)\b)(?=[\w' -]{2,30}(?: now)?,? (?:i |we )?(?:just )?moved (?:here|in|last"
        rf"|this (?:week|month|year|spring|summer|autumn|fall|winter)|from|(?:a|two|\d) [a-z]{{3,6}} ago)\b){VALUE}",
        _lives,
    ),
    rule(
        rf"(?:i|we)(?:'ve| have)?{BLANKS}(?:(?:just|recently|now){BLANKS})?moved (?:(?:back|over|away) )?to"
        rf"{BLANKS}{VALUE}",
        _moved,
    ),
    rule(rf"(?:{I_AM}{ADVERB}(?:originally )?|i (?:originally )?come )from{BLANKS}{VALUE}", _from),
    rule(rf"(?:i {ADVERB}work|{I_AM}{ADVERB}working) as{BLANKS}(?P<value>an?{BLANKS}\S{REST})", _works_as),
    rule(rf"(?:i {ADVERB}work|{I_AM}{ADVERB}(?:working|employed)) (?P<at>at|for){BLANKS}{VALUE}", _works_at),
    rule(rf"(?:i {ADVERB}work|{I_AM}{ADVERB}working) in{BLANKS}(?P<value>{words.INDUSTRIES}){END}", _works_in),
    rule(
        rf"{I_AM}{ADVERB}(?P<value>an?{BLANKS}{words.PROFESSIONS}(?: and (?:an? )?{words.PROFESSIONS})?){END}",
        _profession,
    ),
    rule(
        rf"{I_AM}{ADVERB}(?P<value>(?:an? )?{words.DIETS},? (?:but|though|although|except(?: that)?)"
        rf" i (?:still |do |also |sometimes |will ){{0,2}}(?:eat|drink|have)\b{REST})",
        _condition,
    ),
    rule(rf"{I_AM}{ADVERB}(?P<value>(?:an? )?{words.CONDITIONS}){END}", _condition),
    rule(rf"i(?:'ve got| {ADVERB}have){BLANKS}(?P<value>{words.ILLNESSES}){END}", _illness),
    rule(
        rf"i(?:(?:'ve| have){BLANKS}{ADVERB}been|'m| am){BLANKS}(?P<value>(?:an? )?{words.CONDITIONS})"
        r"(?P<since> (?:since|for)(?: (?!and\b|but\b|so\b)[\w']{1,15}){1,4})",
        _condition_since,
    ),
    rule(rf"{I_AM}{ADVERB}(?P<value>\d{{1,3}})(?: years? old\b| y/?o\b|(?=\s{{0,3}}(?:$|[,.!](?!\d))))", _age),
)
