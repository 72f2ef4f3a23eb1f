"""When a session is summarised, and how much of it: against numbers worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.sessions.restoring import valid_starts
from memory.sessions.summaries import (
    CompactionRules,
    RollingRules,
    Usage,
    compaction_count,
    count_to_reach,
    limit_count,
    max_summary_tokens,
    new_part_tokens,
    rolling_count,
    summary_tokens_after,
)
from support.contexts import message

ROLLING = RollingRules(min_turns=4, trigger_ratio=0.8, target_ratio=0.5)


def usage(*costs: int, summary: int = 0, most: int = 250, torn: tuple[int, ...] = (), newer_tokens: int = 0) -> Usage:
    """Messages of these costs; a conversation may begin anywhere but at `torn`."""
    may = [place not in torn for place in range(len(costs))]
    newer = 1 if newer_tokens else 0
    return Usage(costs, may, summary, most, newer=newer, newer_tokens=newer_tokens)


@pytest.mark.parametrize(
    ("costs", "condensed"),
    [
        ([200] * 4, 0),  # 800 of 1,000 is not over .80
        ([200, 200, 200, 201], 3),  # 801: two leave 401 and 160 of summary, three leave 201 and 160
        ([267] * 3, 0),  # 801, but three messages only
    ],
)
def test_a_rolling_summary_is_due_over_eight_tenths_with_four_messages(costs: list[int], condensed: int) -> None:
    """Given a budget of 1,000, then the trigger and the least number of messages hold to the token."""
    assert rolling_count(usage(*costs), 1_000, ROLLING) == condensed


def test_the_summary_that_is_there_counts() -> None:
    """Given a summary of 201 beside 600, then it is due, and two go: 300 and a summary of 250 would be too much."""
    assert rolling_count(usage(*[150] * 4, summary=200), 1_000, ROLLING) == 0
    assert rolling_count(usage(*[150] * 4, summary=201), 1_000, ROLLING) == 3
    assert rolling_count(usage(*[150] * 4, summary=201, most=200), 1_000, ROLLING) == 2


def test_as_few_messages_go_as_reach_the_target_with_what_the_summary_will_take() -> None:
    """Given ten messages of 100 and a budget of 1,000, then seven go: 300 + 160 is under 500, 400 + 160 is not."""
    assert new_part_tokens(0, 600, 250) == 160
    assert new_part_tokens(0, 700, 250) == 160
    assert rolling_count(usage(*[100] * 10), 1_000, ROLLING) == 7


def test_the_target_is_reached_when_it_is_met_exactly() -> None:
    """Given numbers that leave exactly half, then no more goes."""
    # 340 left and 160 of summary: 500.
    assert rolling_count(usage(500, 100, 100, 140), 1_000, ROLLING) == 1


def test_the_newest_message_stays_however_long_it_is() -> None:
    """Given a newest message over the whole budget, then all others go and it stays."""
    assert rolling_count(usage(100, 100, 100, 5_000), 1_000, ROLLING) == 3


def test_no_cut_falls_where_a_conversation_may_not_begin() -> None:
    """Given an exchange with a tool at the cut, then the cut moves behind it, or where nothing is behind it before."""
    assert rolling_count(usage(*[100] * 10, torn=(7,)), 1_000, ROLLING) == 8
    assert rolling_count(usage(*[100] * 10, torn=(7, 8, 9)), 1_000, ROLLING) == 6
    assert rolling_count(usage(*[100] * 10, torn=tuple(range(1, 10))), 1_000, ROLLING) == 0


@pytest.mark.parametrize(
    ("costs", "condensed"),
    [
        ([20_904] * 4, 0),  # 83,616 is not over 100,000 less 16,384
        ([20_904, 20_904, 20_904, 20_905], 3),  # 83,617: the newest alone reaches 20,000
        ([1_000] * 84, 64),  # twenty of 1,000 are the newest 20,000
        ([50_000, 30_000, 10_000], 1),  # the second reaches into the newest 20,000 and stays whole
    ],
)
def test_a_compaction_keeps_the_newest_twenty_thousand(costs: list[int], condensed: int) -> None:
    """Given a budget of 100,000 and the numbers as they come, then the reserve and what is kept hold to the token."""
    assert compaction_count(usage(*costs, most=2_000), 100_000, CompactionRules()) == condensed


def test_a_compaction_tears_no_exchange() -> None:
    """Given a cut within an exchange, then more is kept."""
    torn = tuple(range(60, 66))
    assert compaction_count(usage(*[1_000] * 84, most=2_000, torn=torn), 100_000, CompactionRules()) == 59


def test_messages_nobody_counted_one_by_one_are_in_use_and_stay() -> None:
    """Given a long rest that was not looked at, then it counts for the trigger and for what is kept."""
    looked_at = usage(*[1_000] * 50, most=2_000, newer_tokens=50_000)
    assert compaction_count(looked_at, 100_000, CompactionRules()) == 49
    assert rolling_count(looked_at, 100_000, ROLLING) == 49


def test_a_summary_takes_a_quarter_of_a_small_budget_and_its_most_of_a_large_one() -> None:
    """Given budgets, then the summary's most follows."""
    assert (max_summary_tokens(2_000, 4_000), max_summary_tokens(2_000, 100_000), max_summary_tokens(2_000, 2)) == (
        1_000,
        2_000,
        1,
    )


def test_what_is_appended_is_a_fifth_within_what_is_free_or_half() -> None:
    """Given tokens condensed, then a fifth is appended, of short ones up to two thirds, within the room."""
    assert new_part_tokens(0, 5_000, 2_000) == 1_000
    assert new_part_tokens(0, 30, 2_000) == 48
    assert new_part_tokens(0, 120, 2_000) == 80
    assert new_part_tokens(0, 600, 2_000) == 160
    assert new_part_tokens(1_900, 9_000, 2_000) == 1_000  # the old part gives way
    assert summary_tokens_after(1_900, 9_000, 2_000) == 2_000
    assert summary_tokens_after(100, 600, 2_000) == 260


def test_a_step_takes_no_more_than_it_can_and_one_exchange_in_any_case() -> None:
    """Given a limit of tokens for one step, then the last cut within it is taken."""
    five = usage(*[100] * 5, torn=(2,))
    assert limit_count(five, 4, 1_000) == 4
    assert limit_count(five, 4, 399) == 3
    assert limit_count(five, 4, 250) == 1
    assert limit_count(five, 4, 10) == 1


USAGES = st.integers(1, 40).flatmap(
    lambda n: st.builds(
        Usage,
        st.lists(st.integers(1, 3_000), min_size=n, max_size=n),
        st.lists(st.booleans(), min_size=n, max_size=n),
        st.integers(0, 500),
        st.integers(1, 500),
        st.integers(0, 3),
        st.integers(0, 9_000),
    )
)


@given(usage=USAGES, budget=st.integers(100, 50_000))
def test_whatever_is_decided_the_newest_stays_and_nothing_is_torn(usage: Usage, budget: int) -> None:
    """Given any session, then a decision leaves the newest message, begins where it may, and lowers what is in use."""
    decided = (
        rolling_count(usage, budget, ROLLING),
        compaction_count(usage, budget, CompactionRules(budget // 6, budget // 5)),
        count_to_reach(usage, budget),
    )
    for condensed in decided:
        assert 0 <= condensed < len(usage.message_tokens) or condensed == 0
        assert condensed == 0 or usage.valid_starts[condensed]
    if decided[0]:
        assert usage.total_tokens > 0.8 * budget
        assert usage.tokens_after(decided[0]) <= 0.5 * budget or usage.tokens_after(decided[0]) < usage.total_tokens
    if decided[2]:
        assert usage.tokens_after(decided[2]) < usage.total_tokens


ROLES = st.lists(st.sampled_from(["user", "call", "tool"]), min_size=2, max_size=14)


@given(roles=ROLES, budget=st.integers(20, 200))
def test_no_answer_of_a_tool_stays_behind_without_its_call(roles: list[str], budget: int) -> None:
    """Given any order of calls and answers, then no answer that is kept was asked for in what goes."""
    messages = []
    for number, role in enumerate(roles):
        if role == "call":
            messages.append(message(number, role="assistant", tool_calls=[{"id": f"c{number}"}]))
        elif role == "tool":
            asked = next((n for n in range(number - 1, -1, -1) if roles[n] == "call"), None)
            messages.append(message(number, role="tool", tool_call_id=f"c{asked}"))
        else:
            messages.append(message(number))
    found = Usage([20] * len(messages), valid_starts(messages), 0, 10)
    cut = rolling_count(found, budget, ROLLING)
    gone = {call["id"] for one in messages[:cut] for call in one.tool_calls}
    assert not cut or not any(one.tool_call_id in gone for one in messages[cut:] if one.role == "tool")
