"""Each rule of a context by itself, with values worked out by hand: turns, scopes, duplicates, tokens, the gate."""

from __future__ import annotations

import math
from typing import Any

import pytest

from retrieval.context.fit import fitting_prefix, room_of
from retrieval.context.select import Candidate, distinct, ranked, relevance_of, tier_of
from retrieval.context.turns import choose_turns
from retrieval.context.write import NoVerdict, chronological, parse_answer
from retrieval.results import normalised
from reverie.clock import from_micros
from reverie.errors import Rejected
from reverie.recall.calls import MIN_CONTEXT_TOKENS
from storage.memories.records import RATES, decay
from storage.recall.chunk_sources import ChunkAttributes
from support.contexts import HOUR, MORNING, candidate, message

STANDARD = RATES["standard"]


# --- recent, important and relevant turns ---


def test_ten_recent_five_important_and_five_relevant_turns_make_twenty() -> None:
    """Given more than enough of each kind, then 10, 5 and 5 are taken, each kind in its own order."""
    recent = [message(n) for n in range(20, 30)]
    important = [message(n) for n in range(9, 1, -1)]
    relevant = [message(n) for n in range(10, 18)]
    chosen = choose_turns(recent, important, relevant, max_messages=20)
    assert [m.id for m in chosen.recent] == [f"m{n}" for n in range(20, 30)]
    assert [m.id for m in chosen.important] == ["m9", "m8", "m7", "m6", "m5"]
    assert [m.id for m in chosen.relevant] == ["m10", "m11", "m12", "m13", "m14"]
    assert len(chosen.ids) == 20


def test_a_message_in_several_lists_comes_once() -> None:
    """Given a turn that is recent, important and relevant, then it is recent, and the other lists are read further."""
    recent = [message(8), message(9)]
    chosen = choose_turns(recent, [message(9), message(3)], [message(8), message(3), message(1)], max_messages=20)
    assert [m.id for m in chosen.important] == ["m3"]
    assert [m.id for m in chosen.relevant] == ["m1"]


def test_the_cap_takes_from_the_relevant_turns_first_and_never_from_the_recent_ones() -> None:
    """Given caps of 6, 4 and 2 over four recent turns, then 2 and 0 others have room, and the window always wins."""
    recent = [message(n) for n in range(6, 10)]
    important, relevant = [message(1)], [message(2), message(3)]
    six, four, two = (choose_turns(recent, important, relevant, max_messages=most) for most in (6, 4, 2))
    assert [m.id for m in (*six.important, *six.relevant)] == ["m1", "m2"]
    assert [m.id for m in (*four.important, *four.relevant)] == []
    assert len(two.recent) == 4


def test_turns_are_told_in_the_order_in_which_they_were_said() -> None:
    """Given turns of the same moment and others, then time decides, and then the id."""
    same = [message(2, created_at=MORNING), message(1, created_at=MORNING), message(0, created_at=MORNING + 1)]
    assert [m.id for m in chronological(same)] == ["m1", "m2", "m0"]


# --- scopes ---


def standing(session: str | None, channel: str | None) -> ChunkAttributes:
    return ChunkAttributes(1, session, channel, 0.5, 0, None, MORNING)


@pytest.mark.parametrize(
    ("session", "channel", "tier"),
    [
        ("s", "c", "conversation"),
        ("s", None, "conversation"),
        ("other", "c", "channel"),
        ("other", "d", "workspace"),
        ("other", None, "workspace"),
        (None, None, "workspace"),
    ],
)
def test_the_tier_is_the_narrowest_scope_that_holds_it(session: str | None, channel: str | None, tier: str) -> None:
    """Given a session in a channel, then what lies in the session, in the channel or elsewhere is told apart."""
    assert tier_of(standing(session, channel), session="s", channel="c") == tier


def test_sessions_without_a_channel_share_none() -> None:
    """Given a session in no channel, then another without one is not of the same channel."""
    assert tier_of(standing("other", None), session="s", channel=None) == "workspace"


def test_decay_is_importance_times_fading_times_use() -> None:
    """Given a workspace memory of importance .8, found 3 times, 24 hours ago: .8 x .998^24 x (1 + ln 4) = 1.8194."""
    found = decay("workspace", importance=0.8, access_count=3, hours=24, rates=STANDARD)
    assert found == pytest.approx(1.8194, abs=1e-4)
    assert found == pytest.approx(0.8 * 0.998**24 * (1 + math.log(4)))


@pytest.mark.parametrize(
    ("profile", "tier", "week"),
    [
        ("standard", "account", 0.8453),
        ("standard", "workspace", 0.7144),
        ("standard", "channel", 0.4308),
        ("standard", "conversation", 0.1848),
        ("fast", "account", 0.7144),
        ("fast", "workspace", 0.4308),
        ("fast", "channel", 0.1848),
    ],
)
def test_what_a_week_leaves_is_what_the_seeds_say(profile: str, tier: str, week: float) -> None:
    """Given the two sets of rates, then 168 hours leave 71, 43 and 17 to 18 per cent in the fast one."""
    rates = RATES[profile]  # type: ignore[index]
    assert decay(tier, importance=1, access_count=0, hours=168, rates=rates) == pytest.approx(week, abs=1e-4)  # type: ignore[arg-type]


def test_relevance_is_the_fused_score_faded_once() -> None:
    """Given a score of .6, 100 hours ago in a channel: .6 x .5 x .995^100 = .1817; the future does not add."""
    found = candidate(1, score=0.6, tier="channel", last_at=MORNING - 100 * HOUR)
    assert relevance_of(found, now=MORNING, rates=STANDARD) == pytest.approx(0.1817, abs=1e-4)
    later = candidate(1, score=0.6, tier="channel", last_at=MORNING + 100 * HOUR)
    assert relevance_of(later, now=MORNING, rates=STANDARD) == pytest.approx(0.3)


def test_a_tier_is_no_second_weight() -> None:
    """Given two candidates that differ in nothing but their tier, said this moment, then they weigh the same.

    This is the double-discount trap: were tiers weighed as well, what lies far away would be discounted twice.
    """
    tiers = ("conversation", "channel", "workspace", "account")
    found = [candidate(n, tier=tier, score=0.7, last_at=MORNING) for n, tier in enumerate(tiers)]
    assert {c.relevance for c in ranked(found, now=MORNING, rates=STANDARD)} == {0.35}


def test_a_better_match_far_away_is_chosen_before_a_weaker_one_nearby() -> None:
    """Given a workspace match of 1 and a conversation match of .9, both 24 hours old, then the first leads.

    Faded once they are .4765 and .3536.
    """
    far = candidate(1, score=1.0, tier="workspace", last_at=MORNING - 24 * HOUR)
    near = candidate(2, score=0.9, tier="conversation", last_at=MORNING - 24 * HOUR)
    found = ranked([near, far], now=MORNING, rates=STANDARD)
    assert [c.chunk_id for c in found] == [1, 2]
    assert [c.relevance for c in found] == pytest.approx([0.4765, 0.3536], abs=1e-4)


def test_what_has_faded_to_nothing_still_has_an_order() -> None:
    """Given things so old that no number is left of them, then the better match leads, then the newer."""
    ages = [candidate(n, score=n / 10, last_at=-(10**6) * HOUR) for n in (1, 3, 2)]
    assert [c.chunk_id for c in ranked(ages, now=MORNING, rates=STANDARD)] == [3, 2, 1]


# --- duplicates ---


def kept(*found: Candidate, limit: int = 9, **more: Any) -> tuple[list[int], int]:
    """Return the chunks of what stays, and how many were left out because they say the same."""
    chosen, folded = distinct(found, limit=limit, **more)
    return [one.chunk_id for one in chosen], folded


def test_of_two_that_say_the_same_the_newer_is_told_in_the_better_place() -> None:
    """Given the same words twice, then one stays, the newer, and the other is counted; whatever differs stays."""
    older, newer = (
        candidate(1, "I moved to Lisbon!"),
        candidate(2, "i  moved to LISBON", created_at=from_micros(MORNING + 1)),
    )
    other = candidate(3, "I moved to Porto")
    assert kept(older, other, newer) == ([2, 3], 1)
    assert kept(newer, other, older) == ([2, 3], 1)
    assert normalised("?!") != normalised("...")


def test_the_same_words_of_two_speakers_are_two_things() -> None:
    """Given one sentence of two people, then both are told."""
    found = [candidate(1, "I am 40.", name="Ana"), candidate(2, "I am 40.", name="Rui")]
    assert kept(*found) == ([1, 2], 0)


def test_what_the_conversation_says_already_is_left_out() -> None:
    """Given a turn of the conversation, then its words do not come again; others do, however near they are."""
    said = message(1, "hello, there!")
    found = [candidate(1, "Hello there"), candidate(2, "Hello where")]
    found.append(candidate(3, "Hello there", role="assistant"))
    assert kept(*found, known=[said]) == ([2, 3], 0)


def test_duplicates_do_not_use_up_the_places() -> None:
    """Given two places and duplicates among the best, then the places go to things that differ."""
    assert kept(candidate(1, "a"), candidate(2, "a"), candidate(3, "b"), candidate(4, "c"), limit=2) == ([1, 3], 1)


# --- tokens ---


def test_what_does_not_fit_ends_the_list() -> None:
    """Given costs of 4, 5, 3 and a room of 8, then only the first fits, and the third does not slip in."""
    assert fitting_prefix([4, 5, 3], 8, cuttable=0) == (1, None)
    assert fitting_prefix([4, 4, 3], 8, cuttable=0) == (2, None)
    assert fitting_prefix([], 8, cuttable=0) == (0, None)


def test_the_first_is_cut_where_it_does_not_fit() -> None:
    """Given a first item of 20 and a room of 8, then it stays, cut to 8."""
    assert fitting_prefix([20, 1], 8, cuttable=2) == (1, 8)


def test_another_that_alone_is_too_large_is_cut_to_what_is_left_if_that_is_worth_a_line() -> None:
    """Given a second item larger than the whole room, then it gets the rest; but not a rest of a few tokens."""
    assert fitting_prefix([30, 500, 1], 100, cuttable=2) == (2, 70)
    assert fitting_prefix([90, 500, 1], 100, cuttable=2) == (1, None)
    assert fitting_prefix([30, 80, 1], 100, cuttable=2) == (1, None)
    assert fitting_prefix([30, 500, 1], 100, cuttable=1) == (1, None)


def test_costs_are_read_no_further_than_they_fit() -> None:
    """Given an endless list, then it is read up to the first that does not fit."""
    read = []

    def costs():  # type: ignore[no-untyped-def]
        while True:
            read.append(3)
            yield 3

    assert fitting_prefix(costs(), 10, cuttable=0) == (3, None)
    assert len(read) == 4


@pytest.mark.parametrize("budget", [0, -1, MIN_CONTEXT_TOKENS - 1])
def test_a_budget_too_small_for_a_document_is_rejected(budget: int) -> None:
    """Given a budget of fewer tokens than the smallest document, then the field is named."""
    with pytest.raises(Rejected, match="at least 64") as caught:
        room_of(budget, reserved=8_000)
    assert caught.value.field == "token_budget"


@pytest.mark.parametrize("budget", [700, 8_000, 8_000 + MIN_CONTEXT_TOKENS - 1])
def test_reserved_tokens_that_leave_nothing_are_rejected(budget: int) -> None:
    """Given more reserved tokens than the budget can spare, then they are named, and not the budget."""
    with pytest.raises(Rejected, match="leave it out") as caught:
        room_of(budget, reserved=8_000)
    assert caught.value.field == "reserved_tokens"


def test_the_room_is_the_budget_less_what_is_reserved() -> None:
    """Given the defaults, then 92,000 tokens are left, and of a budget alone all."""
    assert room_of(100_000, reserved=8_000) == 92_000
    assert room_of(700) == 700


# --- the gate ---


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        ('{"accept": true}', {1, 2, 3}),
        ('{"keep": [3, 1]}', {1, 3}),
        ('{"keep": [2, 2]}', {2}),
        ('{"keep": []}', set()),
        (' {"keep": [1]}\n', {1}),
        ('```json\n{"keep": [1]}\n```', {1}),
    ],
)
def test_an_answer_accepts_or_selects(answer: str, kept: set[int]) -> None:
    """Given one of the two forms, then these items stay."""
    assert parse_answer(answer, items=3) == kept


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "yes",
        '{"keep": [4]}',
        '{"keep": [0]}',
        '{"keep": [-1]}',
        '{"keep": ["1"]}',
        '{"keep": [1.5]}',
        '{"keep": [true]}',
        '{"keep": 1}',
        '{"accept": false}',
        '{"accept": true, "keep": [1]}',
        '{"keep": [1], "text": "obey me"}',
        "[1]",
        "{}",
        '{"keep": [1]} and so on',
        '{"keep": [1',
        '{"keep": [' + "9" * 400 + "]}",
        "[" * 5_000,
        '"\ud800"',
    ],
)
def test_any_other_answer_is_none(answer: str) -> None:
    """Given anything else, a text of its own included, then there is no verdict, and why is one line."""
    with pytest.raises(NoVerdict) as caught:
        parse_answer(answer, items=3)
    assert "\n" not in str(caught.value)
