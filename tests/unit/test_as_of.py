"""What held at an earlier time: recall, facts and the history behind them, and what arrives late or from the future."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from memory.lifecycle.curation import undo_entry
from memory.memories.facts import fact_history, list_facts, read_fact
from memory.memories.memories import read_memory
from retrieval.query import RecallRequest
from reverie.calls import validated
from reverie.clock import from_micros, to_micros
from reverie.errors import NotFound, Rejected
from reverie.fields import micros_until
from reverie.memories.calls import GetFact
from reverie.recall.calls import Recall
from support.extracting import Extracting, tell
from support.knowing import Knowing
from support.pipeline import WORKSPACE, Pipeline
from support.recalling import BagOfWords, OnDiskOnly, find

MAY, JUNE, JULY = ("2023-05-03T09:30:00Z", "2023-06-10T12:00:00Z", "2023-07-20T08:00:00Z")
BETWEEN_MAY_AND_JUNE, AFTER_JUNE = "2023-05-20", "2023-06-30"


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A pipeline over an empty data folder."""
    made = Pipeline(tmp_path, embedder=BagOfWords())
    yield made
    made.close()


@pytest.fixture
def ana(pipe: Pipeline) -> Knowing:
    """What ana knows."""
    return Knowing(pipe.stores, workspace=WORKSPACE)


def at(moment: str) -> int:
    return to_micros(datetime.fromisoformat(moment))


def looked_back(pipe: Pipeline, query: str, as_of: Any, **more: Any) -> list[str]:
    """The texts that a recall as of a time finds."""
    checked = validated(Recall(query, as_of=as_of)).as_of
    return [found.text for found in pipe.recall(query, as_of=checked, limit=100, **more)]


def moved(pipe: Pipeline, ana: Knowing) -> None:
    """Porto in May, Lisbon in June; a message and a memory of July beside them."""
    ana.set_fact("profile", "city", "Porto", at=at(MAY))
    ana.set_fact("profile", "city", "Lisbon", at=at(JUNE))
    ana.remember("Ana likes the city trams", at=at(JULY))
    pipe.say({"content": "The city has many hills", "created_at": JULY})
    pipe.settle()


SEARCHES: list[dict[str, Any]] = [
    {},
    {"mode": "keyword"},
    {"mode": "vector"},
    {"fusion": "weighted"},
    {"fusion": "rrf"},
]


@pytest.mark.parametrize("how", SEARCHES)
def test_a_recall_finds_what_held_then(pipe: Pipeline, ana: Knowing, how: dict[str, Any]) -> None:
    """Given a fact that was replaced, then each time finds the value of that time, and nothing that was said later."""
    moved(pipe, ana)
    porto, lisbon = "The city is Porto (profile)", "The city is Lisbon (profile)"
    assert looked_back(pipe, "city", "2023-05-01", **how) == []
    assert looked_back(pipe, "city", BETWEEN_MAY_AND_JUNE, **how) == [porto]
    assert looked_back(pipe, "city", AFTER_JUNE, **how) == [lisbon]
    assert set(looked_back(pipe, "city", "2099-01-01", **how)) == set(looked_back(pipe, "city", None, **how))
    assert porto not in looked_back(pipe, "city", None, **how)
    assert len(looked_back(pipe, "city", None, **how)) == 3


@pytest.mark.parametrize("how", SEARCHES)
def test_a_large_agent_is_looked_back_at_too(pipe: Pipeline, ana: Knowing, how: dict[str, Any]) -> None:
    """Given an index that is still being built, then the indexes on disk and what was replaced are searched."""
    moved(pipe, ana)
    request = RecallRequest(query="city", agent="ana", as_of=BETWEEN_MAY_AND_JUNE, **how)
    found = find(pipe.store, pipe.embedder, request, indexes=OnDiskOnly())
    assert [one.text for one in found.response] == ["The city is Porto (profile)"]


def test_what_was_replaced_says_until_when_it_held(pipe: Pipeline, ana: Knowing) -> None:
    """Given a replaced fact, then its result, its record and its hit say that it is of the past."""
    moved(pipe, ana)
    request = RecallRequest(query="city", agent="ana", as_of=BETWEEN_MAY_AND_JUNE, explain=True)
    outcome = find(pipe.store, pipe.embedder, request)
    [found] = outcome.response.results
    assert (found.kind, found.created_at, found.valid_to) == ("memory", from_micros(at(MAY)), from_micros(at(JUNE)))
    assert found.explanation is not None
    assert found.relevance > 0
    assert outcome.past is not None
    assert outcome.past.memory(outcome.hits[0].chunk_id).created_at == at(MAY)
    assert "ws" not in {
        hit.store for hit in (*outcome.hits, *outcome.folded)
    }  # it is a chunk of no store, so it cannot be recorded as recalled
    record = read_memory(ana.memories, found.id)
    assert (record.valid_from, record.valid_to) == (found.created_at, found.valid_to)


def test_a_recall_of_the_past_keeps_to_its_session_tags_and_kinds(pipe: Pipeline, ana: Knowing) -> None:
    """Given replaced memories of two sessions, then each recall finds those that it would have found then."""
    for session in ("s", "other"):
        pipe.say({"content": "Hello", "created_at": MAY}, session=session)
    pipe.settle()
    for session, tag in (("s", "north"), ("other", "south")):
        for moment, place in ((MAY, "Porto"), (JUNE, "Lisbon")):
            ana.remember(
                f"the meeting is in {place}, {session}", at=at(moment), session=session, tier="conversation",
                tags=[tag], subject=f"meeting {session}",
            )  # fmt: skip
    pipe.settle()
    then = {"as_of": BETWEEN_MAY_AND_JUNE}
    in_session, elsewhere = "the meeting is in Porto, s", "the meeting is in Porto, other"
    assert pipe.found("meeting Porto", session="s", **then) == [in_session]
    assert set(pipe.found("meeting Porto", **then)) == {in_session, elsewhere}
    assert pipe.found("meeting Porto", tags=["south"], **then) == [elsewhere]
    assert pipe.found("meeting Porto", kinds=["message"], **then) == []


def test_neighbours_and_repeats_of_later_are_left_out(pipe: Pipeline) -> None:
    """Given a text that was said again later, then the earlier message is found, without what followed later."""
    pipe.say(
        {"content": "The ferry leaves at nine", "created_at": MAY},
        {"content": "Thanks", "created_at": JUNE},
        {"content": "The ferry leaves at nine", "created_at": JULY},
    )
    pipe.settle()
    [found] = pipe.recall("ferry", as_of=BETWEEN_MAY_AND_JUNE, neighbours=5)
    assert found.created_at == from_micros(at(MAY))
    assert (found.before, found.after) == ([], [])


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        ("2023-05-03", "2023-05-03T23:59:59.999999Z"),
        (date(2023, 5, 3), "2023-05-03T23:59:59.999999Z"),
        ("2023-05-03T09:30:00Z", "2023-05-03T09:30:00.000000Z"),
        ("2023-05-03T09:30:00+02:00", "2023-05-03T07:30:00.000000Z"),
        (datetime(2023, 5, 3, 9, 30, tzinfo=timezone(timedelta(hours=2))), "2023-05-03T07:30:00.000000Z"),
    ],
)
def test_a_time_has_a_zone_and_a_date_means_its_end(moment: Any, expected: str) -> None:
    """Given each form of a time, then it is checked and written in one way."""
    assert validated(Recall("q", as_of=moment)).as_of == expected


@pytest.mark.parametrize("moment", ["yesterday", "2023-05-03T09:30:00", "2023-13-01", "", "2023-05", "x" * 500, 7])
def test_another_time_is_refused_in_one_line(moment: Any) -> None:
    """Given no time, or one without a zone, then one line says which argument is wrong."""
    with pytest.raises(Rejected, match="as_of") as refused:
        validated(Recall("q", as_of=moment))
    assert refused.value.field == "as_of"
    assert len(str(refused.value)) < 200
    assert "\n" not in str(refused.value)


def test_the_future_is_now() -> None:
    """Given a time to come, then it is looked at from now."""
    assert micros_until("2099-01-01T00:00:00Z", now=5) == 5
    assert micros_until(None, now=5) is None


def test_facts_are_read_as_of_a_time(ana: Knowing) -> None:
    """Given a fact with a history, then it and the list of facts are those of that time, and before it none."""
    ana.set_fact("profile", "city", "Porto", at=at(MAY))
    ana.set_fact("profile", "city", "Lisbon", at=at(JUNE))
    ana.set_fact("profile", "pet", "a cat", at=at(JULY))
    assert read_fact(ana.memories, "profile", "city", held_at=at(MAY)).value == "Porto"
    assert read_fact(ana.memories, "profile", "city", held_at=at(JUNE)).value == "Lisbon"
    listed = list_facts(ana.memories, category="profile", limit=9, offset=0, held_at=at(JUNE) - 1)
    assert [(one.value, one.valid_from, one.valid_to) for one in listed] == [
        ("Porto", from_micros(at(MAY)), from_micros(at(JUNE)))
    ]
    with pytest.raises(NotFound, match="has no fact profile/city as of 2023-05-03T09:29:59"):
        read_fact(ana.memories, "profile", "city", held_at=at(MAY) - 1)
    assert validated(GetFact("a", "b", as_of="2023-05-03")).as_of == "2023-05-03T23:59:59.999999Z"


def lives(place: str, moment: str) -> dict[str, Any]:
    return {"content": f"I live in {place} at the moment", "created_at": moment}


def test_what_arrives_late_becomes_history(pipe: Pipeline, ana: Knowing) -> None:
    """Given statements that arrive out of order, then the last said stands, and the others hold in their order."""
    extracting = Extracting(pipe)
    for place, moment in (("Lisbon", JULY), ("Faro", MAY), ("Porto", JUNE)):
        tell(pipe, lives(place, moment), session=place, user="u")
        extracting.sweep()
    assert extracting.contents() == ["User lives in Lisbon."]
    history = fact_history(ana.memories, "profile:u", "lives in")
    assert [(one.value, one.valid_from, one.valid_to) for one in history] == [
        ("Lisbon", from_micros(at(JULY)), None),
        ("Porto", from_micros(at(JUNE)), from_micros(at(JULY))),
        ("Faro", from_micros(at(MAY)), from_micros(at(JUNE))),
    ]
    pipe.settle()
    assert pipe.found("lives in", kinds=["memory"], as_of=AFTER_JUNE, user="u") == ["User lives in Porto."]
    for stranger in (None, "v"):
        assert pipe.found("lives in", kinds=["memory"], as_of=AFTER_JUNE, user=stranger) == []


def test_an_undo_restores_the_validity_too(pipe: Pipeline, ana: Knowing) -> None:
    """Given history that arrived late, when the newest or the late one is undone, then the others hold as before."""
    extracting = Extracting(pipe)
    for place, moment in (("Faro", MAY), ("Lisbon", JULY), ("Porto", JUNE)):
        tell(pipe, lives(place, moment), session=place, user="u")
        extracting.sweep()

    def periods() -> list[tuple[str, datetime | None]]:
        return [(one.value, one.valid_to) for one in fact_history(ana.memories, "profile:u", "lives in")]

    with pipe.store.reading() as tx:
        entries = [entry.id for entry in tx.for_agent("ana").curation.page()]
    undo_entry(pipe.store, agent="ana", entry=entries[0], now=pipe.now())
    assert periods() == [("Lisbon", None), ("Faro", from_micros(at(JULY)))]
    undo_entry(pipe.store, agent="ana", entry=entries[1], now=pipe.now())
    assert periods() == [("Faro", None)]
    assert read_fact(ana.memories, "profile:u", "lives in", held_at=at(JULY)).value == "Faro"


def test_a_clock_that_is_ahead_does_not_keep_its_statement_current(pipe: Pipeline, ana: Knowing) -> None:
    """Given a message dated to next century, then what is said after it replaces it, and it holds from when it came."""
    extracting = Extracting(pipe)
    tell(pipe, lives("Faro", "2199-01-01T00:00:00Z"), user="u")
    extracting.sweep()
    tell(pipe, "I live in Lisbon these days", user="u")
    extracting.sweep()
    history = fact_history(ana.memories, "profile:u", "lives in")
    assert [one.value for one in history] == ["Lisbon", "Faro"]
    assert history[1].valid_from is not None
    assert history[1].valid_from <= datetime.now(UTC)


def test_a_memory_holds_from_when_its_message_was_said(pipe: Pipeline, ana: Knowing) -> None:
    """Given memories of one subject from messages out of order, then the one said last stands."""
    [late, early] = pipe.say(
        {"content": "The ferry leaves at ten now", "created_at": JULY},
        {"content": "The ferry leaves at nine", "created_at": MAY},
    )
    pipe.settle()
    newest = ana.remember("The ferry leaves at ten", subject="ferry", source_message=late)
    older = ana.remember("The ferry leaves at nine", subject="ferry", source_message=early)
    assert (newest.valid_from, newest.valid_to) == (at(JULY), None)
    assert ana.record(newest.id).active
    assert (older.superseded_by, older.valid_from, older.valid_to) == (newest.id, at(MAY), at(JULY))
    assert older.accessed_at > at(JULY)  # it does not decay from the day of the message
    now = ana.remember("The ferry leaves at noon", subject="ferry")
    assert ana.record(newest.id).superseded_by == now.id


def test_of_very_many_that_share_most_words_are_embedded(
    pipe: Pipeline, ana: Knowing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given more replaced memories than are embedded, then the others are found by words, none by meaning alone."""
    for number, words in enumerate(("a cat sleeps", "the tram is late", "the boat is red")):
        for moment in (MAY, JUNE):
            ana.remember(f"{words} {moment}", subject=f"s{number}", at=at(moment))
    monkeypatch.setattr("retrieval.candidates._MAX_EMBEDDED", 1)
    then = {"as_of": BETWEEN_MAY_AND_JUNE, "limit": 9}
    ana.remember("kept", at=at(MAY))
    pipe.settle()
    by_meaning = [found.text for found in pipe.recall("the boat", mode="vector", **then)]
    assert by_meaning[0] == f"the boat is red {MAY}"
    assert not any("tram" in text or "cat" in text for text in by_meaning)
    assert f"the tram is late {MAY}" in pipe.found("tram", **then)


def test_what_was_replaced_in_the_account_is_found(pipe: Pipeline, ana: Knowing) -> None:
    """Given a preference of the account that changed, then an earlier time finds the earlier one."""
    for moment, drink in ((MAY, "coffee"), (JUNE, "tea")):
        ana.remember(f"Prefers {drink}", tier="account", kind="preference", subject="drink", at=at(moment))
    pipe.say({"content": "What shall we drink?", "created_at": MAY})
    pipe.settle()
    account = pipe.stores.account_store()
    request = RecallRequest(query="Prefers to drink", agent="ana", kinds=["memory"], as_of=BETWEEN_MAY_AND_JUNE)
    found = find(pipe.store, pipe.embedder, request, account=account).response
    assert [(one.text, one.tier) for one in found] == [("Prefers coffee", "account")]
