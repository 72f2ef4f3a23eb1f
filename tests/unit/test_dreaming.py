"""What a dream sweep thinks of: signals and scores against values worked out by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.upkeep.dream_sweep import refuse_text
from memory.upkeep.dreaming import DreamRules, Signals, Tally, normalised_query
from reverie.clock import DAY_MICROS
from storage.upkeep.dreams import DreamEvent

NOW = 20_000 * DAY_MICROS + DAY_MICROS // 2


def recalled(recall: str, query: str, score: float, at: int) -> DreamEvent:
    """Return one result of one recall."""
    return DreamEvent(id=0, chunk_id=0, recall=recall, query=query, score=score, at=at)


def event(number: int, *, query: str | None = None, score: float = 0.5, days_ago: float = 0.0) -> DreamEvent:
    return recalled(
        f"r{number}", f"query {number}" if query is None else query, score, NOW - int(days_ago * DAY_MICROS)
    )


def signals(*events: DreamEvent, kind: str = "event") -> Signals:
    tally = Tally()
    for event in events:
        tally.add(event)
    return tally.signals(now=NOW, kind=kind)


def test_the_signals_of_three_recalls_are_those_worked_out_by_hand() -> None:
    """Given three hits by two queries on two days, then each signal and the score are as the formulas say."""
    found = signals(
        event(1, query="where", score=0.9, days_ago=45 / 2),
        event(2, query="Where?", score=0.6, days_ago=45 / 2),
        event(3, query="who", score=0.3, days_ago=9.0),
    )

    assert found.hits == 3
    assert found.queries == 2
    assert found.frequency == pytest.approx(0.712414374)  # ln 4 / ln 7 = 1.386294361 / 1.945910149
    assert found.relevance == pytest.approx(0.6)
    assert found.recency == pytest.approx(0.933032992)  # 2 ** (-9 / 90)
    assert found.diversity == pytest.approx(0.4)
    assert found.spread == pytest.approx(0.4)
    # .24 * .712414374 + .30 * .6 + .15 * .933032992 + .15 * .4 + .16 * .4
    assert found.score == pytest.approx(0.614934399)


def test_every_signal_has_a_ceiling_of_one() -> None:
    """Given six hits with the best score by six queries on six days, the last just now, then the score is 1."""
    found = signals(*(event(number, score=1.0, days_ago=float(number)) for number in range(6)))

    assert (found.frequency, found.relevance, found.recency, found.diversity, found.spread) == (1, 1, 1, 1, 1)
    assert found.score == pytest.approx(1.0)
    assert signals(*(event(number, score=7.0) for number in range(400))).relevance == 1.0


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("preference", 365), ("procedure", 365), ("fact", 90), ("event", 90), ("task", 90), ("note", 90)],
)
def test_the_half_life_follows_the_kind(kind: str, expected: int) -> None:
    """Given a hit as long ago as the half-life of its kind, then its recency is one half."""
    found = signals(event(1, days_ago=expected), kind=kind)

    assert found.recency == pytest.approx(0.5)


def test_the_results_of_one_recall_are_one_hit_with_the_best_score() -> None:
    """Given a recall that found a memory and its message, then that is one hit, scored by the best."""
    found = signals(
        recalled("r", "where", 0.4, NOW),
        recalled("r", "where", 0.8, NOW),
        recalled("r", "where", 0.6, NOW),
        event(2, score=0.2),
    )

    assert found.hits == 2
    assert found.relevance == pytest.approx(0.5)


def test_days_are_those_of_utc() -> None:
    """Given two hits a second apart, around midnight, then they are on two days."""
    midnight = 20_000 * DAY_MICROS
    found = signals(recalled("a", "x", 1, midnight - 1_000_000), recalled("b", "y", 1, midnight))

    assert found.spread == pytest.approx(0.4)


@pytest.mark.parametrize(
    "same",
    [
        ("Where does she live?", "where does SHE live", "  where -- does, she: live!! "),
        ("STRASSE", "Straße"),
        ("ﬁne café", "FINE CAFE\u0301"),
        ("ｗｈｅｒｅ", "where"),
        ("snake_case", "snake case"),
        ("?!", "", "  "),
    ],
)
def test_queries_that_differ_by_case_punctuation_and_blanks_are_one(same: tuple[str, ...]) -> None:
    """Given the same words written differently, then they count as one query."""
    assert len({normalised_query(query) for query in same}) == 1


def test_queries_of_other_words_are_others() -> None:
    """Given other words, or the same in another order, then they are other queries."""
    assert len({normalised_query(query) for query in ("a b", "b a", "ab", "résumé", "resume")}) == 5


def test_the_gates_are_hits_queries_and_score() -> None:
    """Given each gate just missed and just met, then it decides alone."""
    rules = DreamRules()
    good = [event(1, query="a", days_ago=1), event(2, query="b", days_ago=2), event(3, query="b", days_ago=3)]

    assert not signals(*good).missed_gate(rules)
    assert signals(*good[:2]).missed_gate(rules)
    assert signals(*(event(n, query="a", score=1.0, days_ago=n) for n in range(9))).missed_gate(rules)
    assert not signals(*good).missed_gate(DreamRules(min_score=signals(*good).score))
    assert signals(*good).missed_gate(DreamRules(min_score=math.nextafter(signals(*good).score, 1)))


_EVENTS = st.lists(
    st.builds(
        recalled,
        st.sampled_from(["a", "b", "c", "d"]),
        st.text(max_size=10),
        st.floats(-2, 9),
        st.integers(NOW - 40 * DAY_MICROS, NOW + DAY_MICROS),
    ),
    max_size=40,
)


@given(_EVENTS, st.sampled_from(["fact", "preference", "event"]))
@settings(max_examples=200)
def test_every_signal_and_the_score_lie_between_zero_and_one(events: list[DreamEvent], kind: str) -> None:
    """Given any events, then no signal and no score leaves [0, 1]."""
    found = signals(*events, kind=kind)

    for number in (found.frequency, found.relevance, found.recency, found.diversity, found.spread, found.score):
        assert 0.0 <= number <= 1.0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("/reset", "command"),
        ("  `/model fast`", "command"),
        ("!rm -rf build", "command"),
        ("／reset", "command"),
        ("\u200b/hidden", "command"),
        ("$ ls -l", "command"),
        ("ana@host:~/src$ make", "command"),
        ("[root@box ~]# reboot now", "command"),
        ("PS C:\\Users> dir", "command"),
        (">>> import os", "command"),
        ("sudo reboot", "command"),
        ("```\nall tests passed\n```", "tool_output"),
        ('{"rows": [1, 2]}', "tool_output"),
        ("Traceback (most recent call last):\n  File", "tool_output"),
        ("<tool_result>42</tool_result>", "tool_output"),
        ("stdout: done", "tool_output"),
        ("my password is hunter2xY!", "secret"),
        ("words " * 4_000, "too_long"),
        ("I moved to Lisbon in May", None),
        ("# Shopping\n- milk", None),
        ("$5 is what it costs", None),
        ("… and then we left", None),
        ("ana@example.com is my address, 5$ a month", None),
        ("half/half, [more or less]", None),
    ],
)
def test_commands_secrets_and_output_of_tools_are_never_promoted(text: str, why: str | None) -> None:
    """Given a text, then it is left out for this reason or for none."""
    assert refuse_text(text) == why
