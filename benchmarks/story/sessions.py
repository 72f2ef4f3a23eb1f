"""LongMemEval before and after: all haystacks stored at once, then days in which all jobs run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from benchmarks.harness.longmemeval import NDCG_DEPTH, SessionQuestion, session_measures
from benchmarks.story.month import DAY, HOUR, JOBS
from benchmarks.story.world import World, micros
from reverie import contract


def sessions_before_and_after(
    world: World, questions: Sequence[SessionQuestion], days: int, tell: Callable[[str], None]
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the measures of session search in percent, on one store: before any job ran, and after the month."""
    times = (message.created_at for one in questions for message in one.haystack.messages)
    newest = max(time for time in times if time is not None)
    start = (micros(newest) // DAY + 1) * DAY
    world.at(start)
    for place, one in enumerate(questions, start=1):
        for session, messages in one.haystack.by_session().items():
            world.say(one.haystack.agent, session, messages)
        tell(f"stored {place} of {len(questions)} haystacks")
    before = _ask(world, questions)
    for day in range(days):
        for hour, jobs in JOBS.items():
            world.at(start + day * DAY + hour * HOUR)
            for job in (contract.EXTRACT_MEMORIES, *jobs):
                world.run(job)
        tell(f"day {day + 1} of {days} over {len(questions)} haystacks")
    return before, _ask(world, questions)


def _ask(world: World, questions: Sequence[SessionQuestion]) -> dict[str, float]:
    scores = []
    for one in questions:
        found = world.search_sessions(one.haystack.agent, one.text, limit=NDCG_DEPTH)
        scores.append(session_measures([result.session for result in found.results], one.gold))
    return {name: 100 * fmean(score[name] for score in scores) for name in scores[0]}
