"""What a memory is worth: the formula by hand, and what lies exactly at a threshold."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.upkeep.relevance import CurationPolicy, hours_until_pruned, is_promotable, is_prunable, relevance
from reverie.memories.types import Tier
from storage.memories.records import RATES, TIERS
from storage.memories.sweeps import MemoryOutline
from support.kept import DEFAULT_POLICY, HOUR, NOW

DAY = 24 * HOUR
# With nothing lost by the hour, relevance is importance as long as nobody recalled it.
STILL = CurationPolicy(rates=dict.fromkeys(TIERS, 1.0))


def memory(**columns: object) -> MemoryOutline:
    plain = MemoryOutline(
        row_id=1, id="m", tier="workspace", lifetime="short_term", kind="fact", source="agent", importance=0.5,
        access_count=0,
        created_at=NOW, accessed_at=NOW, expires_at=None, owner_user_id=None, channel=None, session_row=None,
        is_note=False, is_fact=False, subject=None, pinned=False,
    )  # fmt: skip
    return replace(plain, **columns)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tier", "hours", "importance", "accesses", "expected"),
    [
        ("account", 24, 0.5, 0, 0.5 * 0.976274),  # .999 ** 24
        ("workspace", 24, 0.5, 0, 0.5 * 0.953083),  # .998 ** 24
        ("channel", 24, 0.5, 0, 0.5 * 0.886653),  # .995 ** 24
        ("conversation", 24, 0.5, 0, 0.5 * 0.785678),  # .99 ** 24
        ("workspace", 0, 0.5, 1, 0.5 * 1.693147),  # 1 + ln 2
        ("workspace", 0, 0.5, 3, 0.5 * 2.386294),  # 1 + ln 4
        ("account", 1_000, 0.8, 9, 0.8 * 0.367695 * 3.302585),  # .999 ** 1000, 1 + ln 10
        ("workspace", 0, 1.0, 100, 5.615121),  # 1 + ln 101: above 1, and left so
        ("workspace", 24, 0.0, 100, 0.0),
    ],
)
def test_the_formula(tier: Tier, hours: float, importance: float, accesses: int, expected: float) -> None:
    """Given a memory of each tier, then its relevance is what it comes to by hand."""
    one = memory(tier=tier, importance=importance, access_count=accesses, accessed_at=NOW - int(hours * HOUR))

    assert relevance(one, now=NOW, rates=RATES["standard"]) == pytest.approx(expected, abs=1e-5)


def test_the_fast_profile_fades_faster() -> None:
    """Given the second set of rates, then a day leaves .998, .995 and .990 to the 24th."""
    for tier, left in (("account", 0.953083), ("workspace", 0.886653), ("channel", 0.785678)):
        one = memory(tier=tier, importance=1.0, accessed_at=NOW - 24 * HOUR)
        assert relevance(one, now=NOW, rates=RATES["fast"]) == pytest.approx(left, abs=1e-5)


@given(
    tier=st.sampled_from(TIERS),
    importance=st.floats(0, 1),
    accesses=st.integers(0, 10**6),
    hours=st.floats(-100, 10**5),
    later=st.floats(0, 1_000),
)
def test_time_only_takes_and_recalls_only_give(
    tier: Tier, importance: float, accesses: int, hours: float, later: float
) -> None:
    """Given any memory, then it is worth no more later, no less recalled once more, and never less than nothing."""
    one = memory(tier=tier, importance=importance, access_count=accesses, accessed_at=NOW - int(hours * HOUR))
    now = relevance(one, now=NOW, rates=RATES["standard"])

    assert 0 <= now <= importance * (1 + math.log1p(accesses))
    assert relevance(one, now=NOW + int(later * HOUR), rates=RATES["standard"]) <= now
    assert relevance(replace(one, access_count=accesses + 1), now=NOW, rates=RATES["standard"]) >= now


def test_promotion_needs_more_than_both_thresholds() -> None:
    """Given values exactly at .7 and 3, then nothing is promoted; just above both it is."""
    at = 0.7 / (1 + math.log1p(4))
    above = math.nextafter(at, 1) * (1 + 1e-12)

    def promotable(importance: float, accesses: int) -> bool:
        return is_promotable(memory(importance=importance, access_count=accesses), now=NOW, policy=STILL)

    exactly = replace(STILL, promote_relevance=relevance(memory(importance=at, access_count=4), now=NOW,
                                                         rates=STILL.rates))  # fmt: skip
    assert not is_promotable(memory(importance=at, access_count=4), now=NOW, policy=exactly)
    assert promotable(above, 4)
    assert not promotable(1.0, 3)
    assert promotable(1.0, 4)


def test_only_short_term_memories_are_promoted_and_none_that_ends_with_its_session() -> None:
    """Given worth enough, then a long-term one stays one, and a conversation's ends with it."""
    worth = memory(importance=1.0, access_count=9)
    assert is_promotable(worth, now=NOW, policy=DEFAULT_POLICY)
    for other in ({"lifetime": "long_term"}, {"lifetime": "conversation"}, {"tier": "conversation"}):
        assert not is_promotable(memory(importance=1.0, access_count=9, **other), now=NOW, policy=DEFAULT_POLICY)


def test_pruning_needs_less_than_its_threshold() -> None:
    """Given a relevance of exactly .01, then it stays; with less it goes."""
    assert not is_prunable(memory(importance=0.01), now=NOW, policy=STILL)
    assert is_prunable(memory(importance=math.nextafter(0.01, 0)), now=NOW, policy=STILL)


@pytest.mark.parametrize(
    ("columns", "goes"),
    [
        ({}, True),
        ({"lifetime": "long_term"}, True),
        ({"lifetime": "long_term", "pinned": True}, False),
        ({"lifetime": "long_term", "source": "user"}, False),
        ({"pinned": True}, True),
        ({"source": "user"}, True),
        ({"is_note": True}, False),
        ({"is_fact": True, "source": "user"}, False),
        ({"is_fact": True, "source": "extraction", "created_at": NOW - 366 * DAY}, True),
        ({"tier": "conversation"}, False),
    ],
)
def test_what_is_protected_is_never_pruned(columns: dict[str, object], *, goes: bool) -> None:
    """Given a memory that has faded to nothing, then who wrote, pinned or holds it decides whether it goes."""
    assert is_prunable(memory(importance=0.0, **columns), now=NOW, policy=DEFAULT_POLICY) is goes


@pytest.mark.parametrize(
    ("columns", "days"),
    [
        ({"kind": "fact", "is_fact": True}, 365),
        ({"kind": "preference", "importance": 0.6}, 1_095),
        ({"kind": "task"}, 30),
    ],
)
def test_what_a_user_said_does_not_decay_before_it_is_due_for_review(columns: dict[str, object], days: int) -> None:
    """Given a fact of extraction that nobody recalls, then it stays until it is due for review, since last said."""
    said = memory(source="extraction", accessed_at=NOW - 5_000 * DAY, created_at=NOW - days * DAY + HOUR, **columns)
    assert not is_prunable(said, now=NOW, policy=DEFAULT_POLICY)
    assert is_prunable(said, now=NOW + HOUR, policy=DEFAULT_POLICY)
    assert hours_until_pruned(said, policy=DEFAULT_POLICY) == 5_000 * 24 + 1
    again = replace(said, confirmed_at=NOW)
    assert not is_prunable(again, now=NOW + (days - 1) * DAY, policy=DEFAULT_POLICY)


def test_that_something_has_ended_never_decays() -> None:
    """Given a change that nobody recalls, then it stays: what it ended must not be told as if it held."""
    change = memory(source="extraction", kind="event", subject="changed: user quit their job", accessed_at=0)
    assert not is_prunable(change, now=NOW, policy=DEFAULT_POLICY)
    assert math.isinf(hours_until_pruned(change, policy=DEFAULT_POLICY))
    assert is_prunable(replace(change, subject="job"), now=NOW, policy=DEFAULT_POLICY)
