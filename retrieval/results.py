"""Turns ranked chunks into results: one for each message, file or memory, with its neighbours if requested.

A memory and the message that it came from are one result: the message, at its own rank, which takes the text around it
into account. When the better rank of both counted, notes taken during a conversation displaced the conversation itself
from the first five results (docs/recall.md).

Results that say the same as a better one, by their words (`storage.recall.sameness`), are its duplicates. Two messages
say the same only if the same person said them, and nothing of one end user is a duplicate of something of another.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec

from retrieval.candidates import Candidates
from retrieval.ranking.fusion import Fused
from retrieval.ranking.relevance import Relevance, shown_relevance
from reverie.clock import from_micros, to_micros
from reverie.memories.types import LaterChange
from reverie.recall.types import Explanation, RecallResult, Turn
from storage.index.search_index import Hit
from storage.recall.chunk_sources import ChunkSource, Replacement
from storage.recall.claims import Claim, claims_of, replaces, said_in
from storage.recall.days import passed_day
from storage.recall.dependence import Change, changes_of, newest_change
from storage.recall.sameness import Statement, says_the_same, statement
from storage.recall.words import with_few_marks

_BETWEEN_WORDS = re.compile(r"[\W_]+")


@dataclass(frozen=True, slots=True)
class Twin:
    """The statement of a text, its speaker if it is a message, and the end user to whom it belongs."""

    statement: Statement
    speaker: tuple[str | None, str | None] | None = None
    owner: str | None = None


def twin_of(source: ChunkSource) -> Twin:
    """Return the parts of a chunk by which it is compared: its statement, its speaker and its owner."""
    speaker = (source.role, source.name) if source.kind == "message" else None
    return Twin(statement(source.chunk_text), speaker, source.owner)


class Twins:
    """Finds, among accepted texts, one that says the same as another."""

    def __init__(self) -> None:
        self._count = 0
        # The keys are the parts that must be equal, so that few texts have to be compared.
        self._accepted: dict[tuple[object, ...], list[tuple[int, Twin]]] = defaultdict(list)

    def accept(self, twin: Twin) -> None:
        """Add a text that others are compared with."""
        self._accepted[twin.statement.exact].append((self._count, twin))
        self._count += 1

    def find(self, twin: Twin) -> int | None:
        """Return the position of the first accepted text that says the same, or None."""
        alike = self._accepted.get(twin.statement.exact, ())
        return next((place for place, other in alike if _say_the_same(twin, other)), None)


def _say_the_same(one: Twin, other: Twin) -> bool:
    if _differ(one.speaker, other.speaker) or _differ(one.owner, other.owner):
        return False
    return says_the_same(one.statement, other.statement)


def _differ(one: object, other: object) -> bool:
    return one is not None and other is not None and one != other


def normalised(text: str) -> str:
    """Return a text without case, extra blanks and punctuation; a text of punctuation only keeps it."""
    folded = unicodedata.normalize("NFKC", with_few_marks(text)).casefold()
    return _BETWEEN_WORDS.sub(" ", folded).strip() or " ".join(folded.split())


# At most so many chunks are read beyond the limit. Of 100 results none is replaced by one that ranks below them all in
# LoCoMo.
_FURTHER: Final = 25
# With a `min_score`, at least so many chunks are looked at.
_DEPTH_WITH_FLOOR: Final = 100

# A kind, the session of a message, and an id.
_Key = tuple[str, str | None, str]


class FoundResult(NamedTuple):
    """A result, the hit behind it, and the hits that it replaces: those of its memories (`folded`), and `duplicates`.

    Each replaced hit has the key of the result that it would have been. `sequence` is that of a message; a message in a
    group has its `member`, the user who said it, if it names one.
    """

    result: RecallResult
    hit: Hit
    sequence: int
    owner: str | None
    member: str | None
    confirmed_at: int | None
    folded: dict[_Key, Hit]
    duplicates: dict[_Key, Hit]


class _Found(NamedTuple):
    """A ranked chunk with its text, the key of its result, and its hit. If `folded`, its result is its source."""

    item: Fused
    text: ChunkSource
    key: _Key
    is_folded: bool
    hit: Hit


def find_results(candidates: Candidates, *, now: int) -> list[FoundResult]:
    """Return the results of a request, best first, without texts that have expired by `now` (microseconds).

    With a `min_score`, results below it are left out, and only the best chunks are looked at: a chunk that ranks below
    `_DEPTH_WITH_FLOOR` others is hardly ever more relevant than they are.
    """
    request = candidates.request
    results: dict[_Key, FoundResult] = {}
    folded: list[_Found] = []
    duplicates = None if request.separate_duplicates else _Duplicates()
    read: set[int] = set()
    # Several chunks may belong to one result, and the replacement of a result may rank below all of them.
    count = request.limit + min(request.limit, _FURTHER)
    most = request.limit if request.neighbours else count
    if request.min_score is not None:
        count = max(_DEPTH_WITH_FLOOR, 2 * count)
    while len(results) < request.limit:
        ranked = candidates.best(count)
        # Not a slice: plain scores are normalised over the hits read, so reading more may change the order.
        batch = [item for item in ranked if item.chunk_id not in read]
        # Where chunks only make results of their own, those after the last result need not be read.
        steps = (batch[:most], batch[most:]) if request.separate_memories and request.separate_duplicates else (batch,)
        for found in chain.from_iterable(_find_batch(candidates, step, now) for step in steps if len(results) < most):
            if found.hit.relevance < (request.min_score or 0.0):
                continue
            if found.is_folded:
                folded.append(found)
            elif duplicates is not None and duplicates.take(found, results):
                continue
            elif found.key not in results and len(results) < most:
                text = found.text
                results[found.key] = FoundResult(
                    _result(candidates, found),
                    found.hit,
                    text.sequence,
                    text.owner,
                    text.member,
                    text.confirmed_at,
                    {},
                    {},
                )
        if len(ranked) < count or request.min_score is not None:
            break
        read |= {item.chunk_id for item in batch}
        count *= 4
    for found in folded:
        if found.key in results:
            results[found.key].folded.setdefault(_key(found.text), found.hit)
    found_results = [_with_duplicates(found) for found in results.values()]
    if request.mode == "hybrid":  # a single retriever is asked for its own order
        found_results = answers_first(found_results)
    return with_later_changes(newest_first(found_results)[: request.limit], candidates.replacements, now=now)


# A text that asks, and says nothing else.
_QUESTION: Final = re.compile(r"[^.!?\n]{1,400}[?\uff1f\u061f]\s{0,9}\Z")


def answers_first(results: Sequence[FoundResult]) -> list[FoundResult]:
    """Return results in an order in which a message that only asks comes after the next one, by somebody else.

    The question shares more words with a query than its answer does, most of all when it was asked before.
    """
    ordered = list(results)
    messages = {(one.result.session, one.sequence): one for one in results if one.result.kind == "message"}
    for asked in results:
        answer = messages.get((asked.result.session, asked.sequence + 1))
        if answer is None or asked.result.kind != "message" or not _QUESTION.match(asked.result.text):
            continue
        is_reply = (answer.result.role, answer.result.name) != (asked.result.role, asked.result.name)
        if is_reply and ordered.index(answer) > (place := ordered.index(asked)):
            ordered.remove(answer)
            ordered.insert(place, answer)
    return ordered


# Longer texts say more than their claims.
_CLAIM_CHARACTERS: Final = 600


def newest_first(results: Sequence[FoundResult]) -> list[FoundResult]:
    """Return results in an order in which the newest value of an attribute comes before the values that it replaces.

    Replaced results keep their order, and name their replacement. Claims about the speaker are compared only with
    claims of the same speaker, and nothing of one end user with something of another.
    """
    claims_by_subject: dict[tuple[object, ...], list[_PlacedClaim]] = defaultdict(list)
    for place, found in enumerate(results):
        for claim in _claims(found.result):
            speaker = found.result.name if found.result.kind == "message" else None
            claims_by_subject[_subject(found, claim)].append(
                _PlacedClaim(found.result.created_at, -place, claim, speaker)
            )
    ordered = list(range(len(results)))
    changed: dict[int, FoundResult] = {}
    for one in sorted((one for several in claims_by_subject.values() for one in several), key=lambda one: -one.rank):
        place = -one.rank
        newest = _replacing(one, claims_by_subject[_subject(results[place], one.claim)])
        if newest is None:
            continue
        by = -newest.rank
        changed[place] = _replaced(results[place], results[by].result)
        if ordered.index(by) > ordered.index(place):
            ordered.remove(by)
            ordered.insert(ordered.index(place), by)
    return [changed.get(place, results[place]) for place in ordered]


class _PlacedClaim(NamedTuple):
    """A claim of a result, the time of the result, its negated position as `rank`, and the name of its speaker."""

    at: datetime
    rank: int
    claim: Claim
    speaker: str | None

    def is_of_another(self, other: _PlacedClaim) -> bool:
        """Return whether two speakers with names speak of events of which each has their own: "my interview"."""
        return (self.claim.of_one or other.claim.of_one) and _differ(self.speaker, other.speaker)


def _replacing(one: _PlacedClaim, several: Sequence[_PlacedClaim]) -> _PlacedClaim | None:
    """Return the newest of several claims that replaces `one`; None if `one` was said again later."""
    newer = [other for other in several if other.at > one.at and not other.is_of_another(one)]
    found = max((other for other in newer if replaces(other.claim, one.claim)), default=None)
    again = any(other.at > found.at and other.claim.value == one.claim.value for other in newer) if found else False
    return None if again else found


def _claims(result: RecallResult) -> Sequence[Claim]:
    is_read = result.kind != "file" and len(result.text) <= _CLAIM_CHARACTERS
    return claims_of(result.text) if is_read else ()


def _subject(found: FoundResult, claim: Claim) -> tuple[object, ...]:
    result = found.result
    if claim.is_own and found.member is not None:  # as in a session of the member alone
        return claim.attribute, (result.role, None), found.member
    speaker = (result.role, result.name) if claim.is_own and result.kind == "message" else None
    return claim.attribute, speaker, found.owner


def _replaced(found: FoundResult, by: RecallResult) -> FoundResult:
    changed = msgspec.structs.replace(found.result, replaced_by=by.id, replaced_at=by.created_at)
    return found._replace(result=changed)


_Changes = Sequence[tuple[Replacement, Change]]
# The limit of owners whose changes are looked up, for a viewer who reads as several users.
_MAX_OWNERS: Final = 8


def with_later_changes(
    results: Sequence[FoundResult], replacements: Callable[[str | None], Sequence[Replacement]], *, now: int
) -> list[FoundResult]:
    """Return results; those that depend on something that was replaced later get the newest of these changes.

    Plans whose day has passed by `now` (microseconds) get that day. Replacements are looked up among the memories of a
    result's end user, and among the results. A message from which a replaced memory was made gets that replacement.
    """
    owners = [*dict.fromkeys(user for found in results for user in (found.owner, found.member))][:_MAX_OWNERS]
    replaced = {owner: replacements(owner) for owner in owners}
    known = {owner: changes_of(of_owner) for owner, of_owner in replaced.items()}
    by_message = _by_message(results, [one for of_owner in replaced.values() for one in of_owner])
    by_id = {found.result.id: found.result for found in results}
    for found in results:
        result, person = found.result, _person(found)
        if person is not None and len(result.text) <= _CLAIM_CHARACTERS:
            by = by_id.get(result.replaced_by or "")
            changed = [Replacement("", result.id, result.text, to_micros(result.created_at))]
            if by is not None:
                changed.append(Replacement(result.text, by.id, by.text, to_micros(by.created_at)))
            own = changes_of(changed)
            known.setdefault(found.owner, []).extend((one, _with_named_owner(person, change)) for one, change in own)
            if found.member is not None:
                known.setdefault(found.member, []).extend(own)

    @cache
    def seen_by(owner: str | None, person: str) -> _Changes:
        return [(one, _from_view_of(person, change)) for one, change in known.get(owner, ())]

    return [_with_later_change(found, seen_by, by_message, now) for found in results]


def _by_message(
    results: Sequence[FoundResult], replacements: Sequence[Replacement]
) -> dict[tuple[str, str], Replacement]:
    """Return the newest replacement of a memory that was made from one of these messages, by session and message.

    A memory that was said again since, in these or other words, holds.
    """
    messages = {(one.result.session, one.result.id) for one in results if one.result.kind == "message"}
    found: dict[tuple[str, str], Replacement] = {}
    for one in sorted(replacements, key=lambda one: one.at):
        if (one.session, one.message) in messages and not any(
            other.owner == one.owner and other.at >= one.at and _says_it(other.newer, one) for other in replacements
        ):
            found[one.session, one.message] = one
    return found


def _says_it(text: str, replaced: Replacement) -> bool:
    return says_the_same(statement(text), statement(replaced.older))


def _person(found: FoundResult) -> str | None:
    """Return the name of the person who says a text, empty for the end user; None if no person says it."""
    result = found.result
    if result.kind == "memory":
        return ""
    is_persons = result.kind == "message" and result.role == "user"
    return (result.name or found.member or "").casefold() if is_persons else None


def _with_named_owner(person: str, change: Change) -> Change:
    """Return a change in its speaker's life with the owner as other people's texts name them: "my" becomes "Kate's"."""
    return change._replace(owner=f"{person}'s") if person and change.owner == "my" else change


def _from_view_of(person: str, change: Change) -> Change:
    """Return a change with the owner as this person would name them: "Kate's" becomes "my" for Kate."""
    if not person:
        return change
    return change._replace(owner="my" if change.owner == f"{person}'s" else "")


def _with_later_change(
    found: FoundResult,
    seen_by: Callable[[str | None, str], _Changes],
    by_message: Mapping[tuple[str, str], Replacement],
    now: int,
) -> FoundResult:
    """`seen_by` returns the changes among the memories of an owner, from the view of a person."""
    result, person = found.result, _person(found)
    if person is None or result.replaced_by is not None or len(result.text) > _CLAIM_CHARACTERS:
        return found
    if (day := passed_day(result.text, to_micros(result.created_at), now=now)) is not None:
        return found._replace(result=msgspec.structs.replace(result, changed_since=LaterChange(id="", text="", at=day)))
    said_at = max(to_micros(result.created_at), found.confirmed_at or 0)
    known = [*seen_by(found.owner, person), *(seen_by(found.member, "") if found.member is not None else ())]
    changes = ((one, change) for one, change in known if one.id != result.id)
    newest = newest_change(result.text, said_at, changes)
    of_message = by_message.get((result.session or "", result.id)) if result.kind == "message" else None
    if newest is None and of_message is not None and of_message.at > said_at:
        newest = LaterChange(id=of_message.id, text=said_in(of_message.newer), at=from_micros(of_message.at))
    return found._replace(result=msgspec.structs.replace(result, changed_since=newest)) if newest is not None else found


class _Duplicates:
    """Adds chunks that say the same as a result to the duplicates of that result."""

    def __init__(self) -> None:
        self._twins = Twins()
        self._keys: list[_Key] = []

    def take(self, found: _Found, results: Mapping[_Key, FoundResult]) -> bool:
        """Add a chunk to the duplicates of a result that says the same. False if no other result does."""
        twin = twin_of(found.text)
        if found.key not in results:
            place = self._twins.find(twin)
            if place is not None and self._keys[place] in results:
                results[self._keys[place]].duplicates.setdefault(found.key, found.hit)
                return True
        self._twins.accept(twin)
        self._keys.append(found.key)
        return False


def _with_duplicates(found: FoundResult) -> FoundResult:
    if not found.duplicates:
        return found
    return found._replace(result=msgspec.structs.replace(found.result, duplicates=len(found.duplicates)))


def _find_batch(candidates: Candidates, batch: Sequence[Fused], now: int) -> list[_Found]:
    """Return the unexpired chunks of a batch, each with the key of its result.

    A message gets the relevance of the memory made from it, if that is higher.
    """
    if not batch:
        return []
    texts = {
        number: text
        for number, text in candidates.texts([item.chunk_id for item in batch]).items()
        if text.expires_at is None or text.expires_at > now
    }
    sources = _source_messages(candidates, texts)
    batch = [item for item in batch if item.chunk_id in texts]
    relevances = candidates.relevances(batch, texts)
    shown = {item.chunk_id: sources.get(item.chunk_id, texts[item.chunk_id]) for item in batch}
    of_memories: dict[_Key, Relevance] = {}
    for item in batch:
        if shown[item.chunk_id] is not texts[item.chunk_id]:
            key = _key(shown[item.chunk_id])
            of_memories[key] = relevances[item.chunk_id].at_least(of_memories.get(key, relevances[item.chunk_id]))
    found = []
    for item in batch:
        text, source = texts[item.chunk_id], shown[item.chunk_id]
        relevance = relevances[item.chunk_id]
        if of_memories:
            relevance = relevance.at_least(of_memories.get(_key(text), relevance))
        found.append(_Found(item, text, _key(source), source is not text, candidates.hit(item, relevance)))
    return found


def _key(source: ChunkSource) -> _Key:
    return source.kind, source.session if source.kind == "message" else None, source.id


def _source_messages(candidates: Candidates, texts: Mapping[int, ChunkSource]) -> dict[int, ChunkSource]:
    """Return the messages that memories came from, by the memories' chunks, as far as the request may find them.

    Ids of messages are unique within a session. A memory without a session belongs to the message with that id, if
    there is only one.
    """
    request, query = candidates.request, candidates.query
    if request.separate_memories or not request.finds("message"):
        return {}
    ids = {text.source_message for text in texts.values() if text.source_message is not None}
    if not ids:
        return {}
    found = query.repositories.chunk_sources
    chunks = found.first_of_messages(sorted(ids), query.filter)
    messages: dict[str, list[ChunkSource]] = {}
    for message in found.texts(chunks, until=query.prepared.until).values():
        messages.setdefault(message.id, []).append(message)
    sources = {}
    for number, text in texts.items():
        same = messages.get(text.source_message or "", [])
        if text.source_session is not None:
            same = [message for message in same if message.ref_code == text.source_session]
        if len(same) == 1:
            sources[number] = same[0]
    return sources


def _result(candidates: Candidates, found: _Found) -> RecallResult:
    request, item, text = candidates.request, found.item, found.text
    before: list[Turn] = []
    after: list[Turn] = []
    if request.neighbours and text.kind == "message" and text.session is not None:
        before, after = candidates.query.repositories.chunk_sources.neighbours(
            text.session, text.sequence, request.neighbours
        )
        if (until := candidates.query.prepared.until) is not None:
            said_by_then = from_micros(until)
            before, after = ([turn for turn in turns if turn.created_at <= said_by_then] for turns in (before, after))
    explanation = None
    if request.explain:
        by_retriever: dict[str, Any] = {str(name): one for name, one in item.retriever_scores.items()}
        explanation = Explanation(score=item.score, **by_retriever)
    return RecallResult(
        id=text.id,
        kind="memory" if text.kind == "memory" else "file" if text.kind == "file" else "message",
        text=text.text,
        created_at=from_micros(text.created_at),
        relevance=shown_relevance(found.hit.relevance),
        session=text.session,
        ref_code=text.ref_code,
        role=text.role,
        name=text.name,
        tags=list(text.tags),
        tier=text.tier,
        source_message=text.source_message,
        valid_to=from_micros(text.valid_to) if text.valid_to is not None else None,
        waits=text.waits,
        excerpt=text.chunk_text if text.chunk_text != text.text else None,
        before=before,
        after=after,
        explanation=explanation,
    )
