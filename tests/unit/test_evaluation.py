"""The comparison of two runs over captured questions: what came and went, which results were used, and the figures."""

from __future__ import annotations

import pytest

from memory.evaluation import CUTS, Item, Run, compare, evaluate, overlap, used_items
from storage.recall.captured import CapturedQuery

TEXTS = {
    "a": "Agnes lives in a lighthouse near Nazare.",
    "b": "Agnes has a dog.",
    "c": "Agnes moved to Lisbon.",
    "d": "Agnes plays chess.",
    "e": "Agnes sails.",
    "f": "Agnes reads.",
}
ANSWER = "Agnes lives near Nazare, in a lighthouse."


def run(names: str, *, limit: int = 5, seconds: float = 0.01, **more: str) -> Run:
    """A run that found these items, in this order."""
    found: dict[Item, str] = {("memory", None, name): TEXTS[name] for name in names}
    return Run(found, limit, seconds, **more)


def question(number: int = 0, *, kind: str = "recall", found: str = "") -> CapturedQuery:
    """A captured question."""
    return CapturedQuery(
        id=f"q{number}",
        agent="ana",
        user=None,
        at=number,
        kind=kind,  # type: ignore[arg-type]
        query="What about Agnes?",
        parameters="{}",
        found=tuple(["memory", None, name] for name in found),
    )


def test_what_came_in_went_out_and_moved_is_named_with_its_ranks() -> None:
    """Given two rankings, then each difference is a change, in this order, and what keeps its rank is none."""
    compared = compare(question(), [], run("abcd", limit=3), run("acbe", limit=4))
    assert [(one.id, one.before, one.after) for one in compared.changes] == [
        ("e", None, 4),
        ("c", 3, 2),
        ("b", 2, 3),
    ]
    assert compared.overlap == 3 / 4
    compared = compare(question(), [], run("abcd", limit=3), run("ad", limit=3))
    assert [(one.id, one.before, one.after) for one in compared.changes] == [
        ("d", None, 2),
        ("b", 2, None),
        ("c", 3, None),
    ]
    assert compared.overlap == 1 / 3


def test_the_order_of_a_context_is_no_ranking() -> None:
    """Given a context that tells the same in another order, then nothing has changed."""
    assert compare(question(kind="context"), [], run("abc"), run("cab")).changes == []
    assert compare(question(), [], run("abc"), run("cab")).changes != []


@pytest.mark.parametrize(
    ("one", "other", "share"),
    [("", "", 1.0), ("ab", "ab", 1.0), ("ab", "", 0.0), ("abcd", "ab", 0.5), ("ab", "cd", 0.0)],
)
def test_the_overlap_is_a_share_of_the_longer_list(one: str, other: str, share: float) -> None:
    """Given two lists, then the overlap is the same both ways, and 1 for two empty ones."""
    first, second = run(one).ranks(), run(other).ranks()
    assert overlap(first, second) == overlap(second, first) == share


def test_a_result_is_used_if_the_answer_has_words_that_few_other_results_have() -> None:
    """Given an answer, then what it took words from is used; words of the question or of many results do not count."""
    found = run("abcdef").found
    assert used_items(found, "What about Agnes?", [ANSWER]) == {("memory", None, "a")}
    assert used_items(found, "Who lives in the lighthouse near Nazare?", [ANSWER]) == set()
    assert used_items(found, "What about Agnes?", ["Agnes does."]) == set()
    assert used_items(found, "What about Agnes?", []) == set()


def test_figures_are_over_the_questions_that_can_tell() -> None:
    """Given questions whose used result is first, sixth, too deep and unknown, then shares and ranks are of the first
    three, and what got better or worse is counted."""
    asked = [question(number) for number in range(4)]
    answers = [[ANSWER], [ANSWER], [ANSWER], []]
    before = [run("abcdef"), run("bcdefa", seconds=0.03), run("bcdef"), run("ab")]
    after = [run("bacdef"), run("abcdef"), run("bcdefa", degraded="by words"), run("ab")]
    found = evaluate(asked, answers, before, after)
    assert CUTS == (5, 10)
    assert (found.asked, found.with_used, found.better, found.worse) == (4, 3, 2, 1)
    assert found.before.used_in_5 == pytest.approx(1 / 3)
    assert found.before.used_in_10 == pytest.approx(2 / 3)
    assert found.before.mean_reciprocal_rank == pytest.approx((1 + 1 / 6 + 0) / 3)
    assert found.after.used_in_5 == pytest.approx(2 / 3)
    assert found.after.mean_reciprocal_rank == pytest.approx((1 / 2 + 1 + 1 / 6) / 3)
    assert (found.before.median_ms, found.before.slowest_twentieth_ms) == pytest.approx((10.0, 30.0))
    assert (found.before.degraded, found.after.degraded) == (0, 1)
    assert (found.before.used_told, found.changed) == (None, 2)


def test_contexts_count_what_they_tell() -> None:
    """Given contexts, then the figure is the share of the used items that they told, at whatever place."""
    asked = [question(number, kind="context", found="a") for number in range(2)]
    found = evaluate(asked, [[ANSWER], [ANSWER]], [run("bc"), run("ba")], [run("ba"), run("ba")])
    assert (found.before.used_told, found.after.used_told) == (0.5, 1.0)
    assert (found.better, found.worse, found.before.used_in_5) == (1, 0, None)
    assert [one.id for one in found.questions] == ["q0", "q1"], "the most changed first"


def test_a_question_that_cannot_be_asked_is_left_out_and_named() -> None:
    """Given a run that failed, then its question counts nowhere; without any question there are no figures."""
    asked = [question(0, found="ab"), question(1)]
    found = evaluate(
        asked, [[], []], [run("abc", limit=2), run("a")], [run("abc", limit=2), Run({}, error="no session")]
    )
    assert (found.asked, found.not_asked) == (1, {"q1": "no session"})
    assert (found.overlap, found.overlap_with_then) == (1.0, 1.0)
    none = evaluate([], [], [], [])
    assert (none.asked, none.overlap, none.before.used_in_5, none.before.median_ms) == (0, None, None, 0.0)
