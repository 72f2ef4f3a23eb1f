"""Recognises questions that the results of one recall do not answer, and follows names in them to other texts.

A question may describe somebody or something instead of naming it: "the mayor of the town where she was born". Then
the first recall finds who is meant, and the rest of the answer is in texts that share no name with the question. So
texts with the names in the best results are searched for by words. Of these, the texts are kept that also have words of
the question.

Other questions are about a whole history: in which order something happened, or a summary of it. No single text answers
them. The best results only name the subject: small talk, and long answers of an assistant that repeat it. The events
themselves are in many messages of people, which hardly name the subject.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from msgspec import structs

from retrieval.ranking.parsing import searched_words
from retrieval.ranking.relevance import shown_relevance
from retrieval.recaller import RecallOutcome
from reverie.recall.types import RecallResult
from storage.index.search_index import Hit
from storage.recall.words import hash_of, is_function_word, words_of

# A longer query is a turn of a conversation, in which such words say little.
_MAX_QUESTION_CHARACTERS: Final = 240
_WHOLE: Final = re.compile(
    r"\Aorder the\b|\b(?:summar(?:y|ies|i[sz]e[ds]?|i[sz]ing)|sum up|recap|overview|condense|overall"
    r"|(?:my|our) progress|progressed|evolve[ds]?|history of|story of|over time|so far|across (?:all|our)"
    r"|over (?:all )?these (?:weeks|months|years)|until (?:now|today)|up to date|throughout|unfold(?:ed)?"
    r"|step by step|timeline|chronolog(?:y|ical|ically)|sequence|oldest first|one after the other"
    r"|(?:in|into|what|which|the) order\b(?! to)|from (?:start|first|the (?:start|beginning|first)))\b"
    r"|\bfirst\b.{1,80}\b(?:second|next|then)\b",
    re.IGNORECASE | re.DOTALL,
)
# Questions for all that is known of the user: they have hardly a word in common with what is known.
_OF_USER: Final = re.compile(
    r"\b(?:know|remember|recall|learn(?:ed|t)|stored|memories|facts|information)\b.{0,20}\b(?:about|of) (?:me|us"
    r"|the user)\b"
    r"|\b(?:tell|remind) me (?:\w{1,12} ){0,2}about (?:me|myself)\b|\Awho am i\b|\A(?:the )?user(?:'s)? (?:profile"
    r"|background)"
    r"|\A(?:what (?:is|'s) )?my profile\b|\Aabout (?:me|the user)\W{0,3}\Z",
    re.IGNORECASE,
)
# Questions for the assistant's words: "What did you recommend".
_OF_ASSISTANT: Final = re.compile(
    r"\b(?:your|you(?:'ve| have| had)?)"
    r" (?:advi[cs]e|answer|explain|explanation|gave|given|propos|recommend|said|suggest|told)",
    re.IGNORECASE,
)
# Requests in which it matters what people do not eat.
_OF_FOOD: Final = re.compile(
    r"\b(?:eat|eating|food|restaurants?|cook(?:ing)?|bak(?:e|ing)|recipes?|meals?|menus?|dinner|lunch|breakfast|brunch"
    r"|supper|snacks?|take-?away|take-?out|picnic|barbecue|bbq|cake|table for|caf[e\u00e9]s?|groceries|dish(?:es)?)\b",
    re.IGNORECASE,
)
_OF_DIET: Final = re.compile(
    r"\b(?:vegan|vegetarian|veggie|pescatarian|c(?:o)?eliac|kosher|halal|allergic to|[a-z]{2,20} allergy|intolerant"
    r"|diabetic|teetotal|(?:gluten|dairy|lactose|nut)[- ]free|(?:doesn't|don't|does not|can't|cannot|never)"
    r" (?:eat|drink)(?! (?:at|in|on|out|with|before|after|while|late|alone|much|there|here|together))"
    r"|(?:can't have|cannot have|avoids?) (?:any )?(?:gluten|dairy|milk|eggs?|nuts|sugar|salt"
    r"|fish|seafood|alcohol|meat|pork))\b",
    re.IGNORECASE,
)
_DIET_WORDS: Final = "vegan vegetarian pescatarian coeliac celiac kosher halal allergic allergy intolerant diabetic eat"
# "Where did we have dinner?" asks for what happened, not for something to eat.
_ASKS_FOR_PAST: Final = re.compile(r"\A\W{0,3}(?:what|where|when|which|who|how)\b.{0,60}?\b(?:did|was|were)\b", re.I)
_ALL_OF_US: Final = re.compile(
    r"\b(?:us|we|our|everyone|everybody|family|friends|guests|colleagues|team|party)\b", re.IGNORECASE
)
_MAX_DIETS: Final = 5
# Whose diet it is, is said at the beginning of a sentence.
_WORDS_OF_SUBJECT: Final = 4
_SENTENCE_END: Final = re.compile(r"[.!?;\n]")
# Searches by words after the first recall: a chain of four statements needs three.
_SEARCHES: Final = 3
# Texts that are followed after each search.
_FOLLOWED: Final = 5
# Of the first texts, those are followed whose words of the question weigh at least this share of the best text's.
_SHARE_OF_BEST: Final = 0.75
_MAX_WORDS: Final = 48
# So many results of the recall stay before all others.
_KEPT: Final = 5
# Longer texts are about more than one thing.
_MAX_CHARACTERS: Final = 400
# Words in more than this share of the texts are not the subject of a text.
_COMMON: Final = 0.2
# Words for a thing described by another: "the capital of", "the country that"; and questions: "who is the ...".
_RELATIONS: Final = frozenset(["of", "by", "for", "from", "to", "who", "whom", "whose", "where", "which", "that", "in"])
_RELATION_REACH: Final = 5
_ASKING: Final = frozenset(["who", "what", "when", "where", "which"])
_IS: Final = frozenset(["is", "are", "was", "were"])
_WITHIN_A_NAME: Final = frozenset(["of", "the", "and", "de", "van", "von", "al"])


def searches_for(query: str) -> int:
    """Return how many searches a question needs for the things that it describes; 0 if it names everything."""
    words = query.lower().replace("\u2019", "'").split()
    described = sum(_describes(words[place + 1 : place + 1 + _RELATION_REACH]) for place in _places(words, {"the"}))
    owned = sum(word.endswith("'s") for word in words[:-1])
    if described + owned >= 2:
        return _SEARCHES
    asks_directly = (
        words[:1] and words[0] in _ASKING and any("the" in words[p + 1 : p + 2] for p in _places(words, _IS))
    )
    return int(described == 1 and not asks_directly)


def _places(words: Sequence[str], wanted: Collection[str]) -> list[int]:
    return [place for place, word in enumerate(words) if word in wanted]


def _describes(words: Sequence[str]) -> bool:
    """Return whether these words after "the" are a thing and a word that relates it to another thing."""
    place = next((place for place, word in enumerate(words) if word in _RELATIONS or word == "the"), 0)
    return place > 0 and words[place] != "the"


@dataclass(frozen=True, slots=True)
class _Text:
    """A result with the hashes of its words, and the words of the question that it and the texts before it lack."""

    result: RecallResult
    words: frozenset[int]
    missing: frozenset[int]


def follow_names(query: str, found: RecallOutcome, search: Callable[[str], RecallOutcome]) -> RecallOutcome:
    """Return the results of a recall with what `search` finds for their names, behind the texts that have the names.

    The recall stays as it is unless its question describes something.
    """
    searches = searches_for(query)
    if not searches:
        return found
    hits = {_key(result): (result, hit) for result, hit in zip(found.response.results, found.hits, strict=True)}
    found_keys = set(hits)
    asked = {hash_of(word): word for word in words_of(query) if not is_function_word(word)}
    pool = {_key(result): _read(result) for result, _ in hits.values() if len(result.text) <= _MAX_CHARACTERS}
    followed = _best_matches(pool.values(), frozenset(asked))
    order, used = [_key(text.result) for text in followed], set(asked)
    chosen = set(order)
    for _ in range(searches):
        names = {name: text for text in followed for name in _names_of(text, pool.values(), used)}
        if not names:
            break
        missing = {word for text in followed for word in text.missing}
        words = [*(word for name in names for word in name), *(asked[word] for word in missing)]
        more = search(" ".join(list(dict.fromkeys(words))[:_MAX_WORDS]))
        for result, hit in zip(more.response.results, more.hits, strict=True):
            if len(result.text) <= _MAX_CHARACTERS and _key(result) not in hits:
                hits[_key(result)], pool[_key(result)] = (result, hit), _read(result)
        followed = _naming([text for key, text in pool.items() if key not in chosen], names, pool.values())
        used.update(hash_of(word) for name in names for word in name)
        chosen.update(_key(text.result) for text in followed)
        order += [_key(text.result) for text in followed]
    best = max((hit.relevance for hit in found.hits), default=0.0)
    order = list(dict.fromkeys([*map(_key, found.response.results[:_KEPT]), *order, *hits]))
    order = [key for key in order if key in chosen or key in found_keys]
    results, ordered = zip(*(_capped_relevance(*hits[key], best) for key in order), strict=True) if order else ((), ())
    return replace(found, response=structs.replace(found.response, results=list(results)), hits=tuple(ordered))


def with_diets(
    query: str, found: RecallOutcome, search: Callable[[str], RecallOutcome], *, least: float
) -> RecallOutcome:
    """Return the results of a recall; before them, if the query asks for food, what the people in it do not eat.

    "A restaurant for Nora and me" shares one name with "Nora is vegan", and as much with all else about Nora. A diet
    fits such a query, however few words both share: it counts as relevant as the best result, and at least `least`.
    Of the others, none is returned if none is as relevant as that.
    """
    if len(query) > _MAX_QUESTION_CHARACTERS or not _OF_FOOD.search(query) or _ASKS_FOR_PAST.search(query):
        return found
    asked = [word for word in searched_words(_OF_FOOD.sub(" ", query)) if not is_function_word(word)]
    people = None if _ALL_OF_US.search(query) else frozenset(asked)
    best = max((hit.relevance for hit in found.hits), default=0.0)
    relevance = max(best, least)
    more = search(" ".join([_DIET_WORDS, *asked]))
    diets: dict[tuple[str, str | None, str], tuple[RecallResult, Hit]] = {}
    for result, hit in zip(more.response.results, more.hits, strict=True):
        if len(diets) < _MAX_DIETS and _tells_diet(result, people):
            fits = hit._replace(relevance=relevance, relevance_of_any_speaker=relevance)
            diets[_key(result)] = structs.replace(result, relevance=shown_relevance(relevance)), fits
    if not diets:
        return found
    others = zip(found.response.results, found.hits, strict=True) if best >= least else ()
    pairs = [*diets.values(), *(pair for pair in others if _key(pair[0]) not in diets)]
    results, hits = zip(*pairs, strict=True)
    return replace(found, response=structs.replace(found.response, results=list(results)), hits=tuple(hits))


def _tells_diet(result: RecallResult, people: frozenset[str] | None) -> bool:
    """Return whether a person says in a result what one of these people does not eat; None stands for anybody."""
    if not is_of_person(result) or len(result.text) > _MAX_CHARACTERS:
        return False
    named = _OF_DIET.search(result.text)
    if named is None or result.text.rstrip().endswith("?"):
        return False
    sentence = _SENTENCE_END.split(result.text[: named.start()])[-1]
    subject = [*words_of(result.name or ""), *searched_words(sentence)[:_WORDS_OF_SUBJECT]]
    return people is None or not people.isdisjoint(subject)


def _capped_relevance(result: RecallResult, hit: Hit, best: float) -> tuple[RecallResult, Hit]:
    """Return a result with at most the relevance of the first recall's best: alone it is no evidence."""
    if hit.relevance <= best:
        return result, hit
    any_speaker = min(hit.relevance_of_any_speaker, best)
    return (
        structs.replace(result, relevance=shown_relevance(best)),
        hit._replace(relevance=best, relevance_of_any_speaker=any_speaker),
    )


def _key(result: RecallResult) -> tuple[str, str | None, str]:
    return result.kind, result.session, result.id


def _read(result: RecallResult) -> _Text:
    return _Text(result, frozenset(map(hash_of, words_of(result.text))), frozenset())


def _weights(words: Iterable[int], pool: Collection[_Text]) -> dict[int, float]:
    return {word: math.log((len(pool) + 1) / (sum(word in text.words for text in pool) + 0.5)) for word in words}


def _best_matches(pool: Collection[_Text], asked: frozenset[int]) -> list[_Text]:
    """Return the texts with most of the question's words, by weight."""
    weights = _weights(asked, pool)
    rated = [(sum(weights[word] for word in asked & text.words), text) for text in pool]
    least = _SHARE_OF_BEST * max((rate for rate, _ in rated), default=0.0)
    best = sorted(rated, key=lambda one: -one[0])[:_FOLLOWED]
    return [replace(text, missing=asked - text.words) for rate, text in best if rate >= least]


def _naming(texts: Sequence[_Text], names: Mapping[tuple[str, ...], _Text], pool: Collection[_Text]) -> list[_Text]:
    """Return the texts with one of the names; those with most of the missing words come first."""
    hashed = {frozenset(map(hash_of, name)): text for name, text in names.items()}
    weights = _weights({word for words, text in hashed.items() for word in (*words, *text.missing)}, pool)
    rated = []
    for text in texts:
        rates = [
            (sum(weights[word] for word in parent.missing & text.words) + max(weights[word] for word in name), parent)
            for name, parent in hashed.items()
            if name <= text.words
        ]
        if rates:
            rate, parent = max(rates, key=lambda one: one[0])
            rated.append((rate, replace(text, missing=parent.missing - text.words)))
    return [text for _, text in sorted(rated, key=lambda one: -one[0])[:_FOLLOWED]]


def _names_of(text: _Text, pool: Collection[_Text], used: Collection[int]) -> list[tuple[str, ...]]:
    """Return the names in a text that were not searched for yet; without capitals, its runs of rare words."""
    found = [name for name in _capitalised(text.result.text) if not all(hash_of(word) in used for word in name)]
    found = [name for name in found if not all(map(is_function_word, name))]
    if found:
        return found
    run, runs = list[str](), list[tuple[str, ...]]()
    for word in [*words_of(text.result.text), ""]:
        if word and not is_function_word(word) and hash_of(word) not in used and _is_rare(word, pool):
            run.append(word)
        elif run:
            runs.append(tuple(run))
            run = []
    return runs


def _capitalised(text: str) -> list[tuple[str, ...]]:
    """Return the words of each run of capitalised words, with "of" and the like between them."""
    names, name = list[str](), ""
    for word in [*text.split(), ""]:
        if word[:1].isupper() or (name and (word in _WITHIN_A_NAME or word.isdigit())):
            name += f" {word}"
        elif name:
            names.append(name)
            name = ""
    return [words for name in names if (words := tuple(words_of(name)))]


def _is_rare(word: str, pool: Collection[_Text]) -> bool:
    return sum(hash_of(word) in text.words for text in pool) <= _COMMON * len(pool)


def asks_for_history(query: str) -> bool:
    """Return whether a question is about a whole history as people told it."""
    if len(query) > _MAX_QUESTION_CHARACTERS or _OF_ASSISTANT.search(query):
        return False
    return _WHOLE.search(query) is not None


def asks_about_user(query: str) -> bool:
    """Return whether a question is about all that is known of the user: "What do you know about me?"."""
    return len(query) <= _MAX_QUESTION_CHARACTERS and _OF_USER.search(query) is not None


def is_of_person(result: RecallResult) -> bool:
    """Return whether a result is a person's word: a memory, or a message of a user or of somebody with a name.

    A tool's message has the name of the tool.
    """
    return result.kind == "memory" or (
        result.kind == "message" and (result.role == "user" or (bool(result.name) and result.role != "tool"))
    )
