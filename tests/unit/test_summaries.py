"""The jobs that summarise: what they write and cover, two at once, killed between any two steps, run twice, undone."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from adapters.language_models import LanguageModelUnavailable
from adapters.tokens import EstimatedTokens
from memory.jobs import JobReport, JobRun, run_on_store
from memory.lifecycle.curation import list_entries, undo_entry
from memory.sessions import summaries, summary_jobs
from memory.sessions.condensers import Condenser
from memory.sessions.restoring import restore_session
from memory.sessions.summaries import CompactionRules, RollingRules, SummaryRules, condense, due_summary
from memory.sessions.summary_jobs import compact_session, consolidate_conversations, read_summary, summarize_sessions
from reverie.errors import NotFound, Rejected
from reverie.sessions.types import SessionSummary
from storage.sessions.records import SessionName
from storage.transaction import Transaction
from support.copied_data import copy_data
from support.pipeline import Pipeline
from support.scripted import ScriptedLanguageModel

COUNTER = EstimatedTokens()
PLAIN = Condenser(COUNTER)
# Of 1,000 tokens: due over 800, down to 500.
NUMBERS = SummaryRules(1_000, RollingRules(), None, 2_000)
HOUR = 3_600
JOB = "summaries"

SEAHORSES = "- 2026-05-01 Ann: counted seahorses on many visits."


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """An empty workspace."""
    made = Pipeline(tmp_path / "data")
    yield made
    made.close()


def visit(number: int) -> dict[str, Any]:
    """A turn of some 30 tokens that tells something of its own."""
    content = f"On visit {number} I counted {number + 3} seahorses in the harbour and wrote them into the blue book."
    return {"content": content, "name": "Ann", "created_at": f"2026-05-01T09:{number % 60:02}:00Z"}


def tell(pipe: Pipeline, *messages: str | dict[str, Any], session: str = "s", agent: str = "ana") -> None:
    pipe.say(*messages, session=session, agent=agent)
    pipe.drain(lambda: pipe.ingest().taken)


def sweep(pipe: Pipeline, condenser: Condenser = PLAIN, numbers: SummaryRules = NUMBERS, **more: Any) -> dict[str, int]:
    return dict(sweep_report(pipe, condenser, numbers, **more).counts)


def sweep_report(
    pipe: Pipeline, condenser: Condenser = PLAIN, numbers: SummaryRules = NUMBERS, **more: Any
) -> JobReport:
    def work(run: JobRun) -> None:
        summarize_sessions(run, condenser, numbers)

    return run_on_store(pipe.store, JOB, work, now=pipe.now(), **more)


def consolidate(pipe: Pipeline, condenser: Condenser = PLAIN, **more: Any) -> dict[str, int]:
    def work(run: JobRun) -> None:
        consolidate_conversations(run, condenser, NUMBERS, after_hours=24)

    return dict(run_on_store(pipe.store, "consolidate", work, now=pipe.now(), **more).counts)


def summary(pipe: Pipeline, session: str = "s", agent: str = "ana") -> SessionSummary:
    return read_summary(pipe.store, COUNTER, agent=agent, session=session)


def rows(pipe: Pipeline) -> str:
    """Everything of sessions and messages, but when and by whom a job changed them."""
    with pipe.store.reading() as tx:
        found = [
            [list(row) for row in tx.connection.execute(text(f"SELECT * FROM {table} ORDER BY row_id"))]
            for table in ("sessions", "messages")
        ]
    return json.dumps(found, default=str)


def entries(pipe: Pipeline) -> list[int]:
    with pipe.store.reading() as tx:
        return [entry.id for entry in tx.for_agent("ana").curation.page(limit=100)]


def test_the_oldest_are_condensed_until_half_of_the_budget_is_in_use(pipe: Pipeline) -> None:
    """Given 40 turns of some 28 tokens, when the sweep runs, then it covers the oldest and half the budget is kept."""
    tell(pipe, *[visit(n) for n in range(40)])
    assert sweep(pipe)["summaries"] == 1
    found = summary(pipe)
    assert found.epoch == 1
    assert found.covers + found.uncovered == 40
    covered = [m for m in pipe.messages() if m.consolidated_at is not None]
    assert [m.sequence for m in covered] == list(range(1, found.covers + 1))
    assert found.upper_sequence == covered[-1].sequence
    restored = restore_session(pipe.store, COUNTER, agent="ana", session="s", token_budget=1_000)
    assert restored.uncovered == 0
    kept = sum(COUNTER.count([m.content for m in pipe.messages()[found.covers :]])) + 4 * found.uncovered
    assert 300 < kept + found.tokens <= 500
    for number in (0, found.covers - 1):
        assert any(f"visit {n} " in found.text for n in range(max(0, number - 8), number + 8))


def test_a_session_within_its_budget_is_left_alone(pipe: Pipeline) -> None:
    """Given less than eight tenths in use, then nothing is written."""
    tell(pipe, *[visit(n) for n in range(20)])
    before = rows(pipe)
    assert "summaries" not in sweep(pipe)
    assert rows(pipe) == before
    assert entries(pipe) == []


def test_a_summary_grows_at_its_end_and_keeps_within_its_most(pipe: Pipeline) -> None:
    """Given twenty rounds of talk, then the summary has at most a quarter of the budget, the newest told as well."""
    for turn in range(20):
        tell(pipe, *[visit(20 * turn + n) for n in range(20)])
        sweep(pipe)
    found = summary(pipe)
    assert found.epoch > 5
    assert found.tokens <= 250
    newest = max(int(part.split()[0]) for part in found.text.split("On visit ")[1:])
    assert newest > found.covers - 25
    assert len(entries(pipe)) == found.epoch


def test_a_run_tells_the_summary_before_and_after(pipe: Pipeline) -> None:
    """Given a summary that grew, then the line of the newest run has the earlier text and the present one."""
    texts = []
    for turn in range(2):
        tell(pipe, *[visit(40 * turn + n) for n in range(40)])
        sweep(pipe)
        texts.append(summary(pipe).text)
    newest, _ = list_entries(pipe.store, agent="ana", with_texts=True)
    assert (newest.effect, newest.before, newest.after) == ("summarised", *texts)


def test_a_compaction_keeps_the_newest_tokens(pipe: Pipeline) -> None:
    """Given compaction with a reserve of 100 and 200 kept, then all but some 200 tokens is condensed."""
    numbers = SummaryRules(1_000, RollingRules(), CompactionRules(100, 200), 2_000)
    tell(pipe, *[visit(n) for n in range(40)])
    sweep(pipe, numbers=numbers)
    newest = [m for m in pipe.messages() if m.consolidated_at is None]
    tokens = [cost + 4 for cost in COUNTER.count([m.content for m in newest])]
    assert sum(tokens) >= 200 > sum(tokens[1:])
    with pipe.store.reading() as tx:
        assert tx.for_agent("ana").curation.page()[0].why.startswith("compaction: ")


def test_what_was_asked_of_a_tool_and_its_answer_are_condensed_together(pipe: Pipeline) -> None:
    """Given calls all along, then no answer is left whose call is covered."""
    messages: list[dict[str, Any]] = []
    for n in range(20):
        messages += [
            visit(n),
            {"role": "assistant", "content": "", "tool_calls": [{"id": f"c{n}"}]},
            {"role": "tool", "content": f"tide {n} " * 8, "tool_call_id": f"c{n}", "tool_name": "tides"},
        ]
    tell(pipe, *[{key: value for key, value in one.items() if key != "created_at"} for one in messages])
    sweep(pipe)
    left = [m for m in pipe.messages() if m.consolidated_at is None]
    assert left[0].role != "tool"
    calls = {call["id"] for m in left for call in m.tool_calls}
    assert all(m.tool_call_id in calls for m in left if m.role == "tool")
    assert "tools used: tides" in summary(pipe).text
    assert "tide 1" not in summary(pipe).text


def test_run_twice_is_run_once(pipe: Pipeline) -> None:
    """Given a sweep that ran, when it runs again, then nothing changes, and nothing is looked at again."""
    tell(pipe, *[visit(n) for n in range(40)])
    sweep(pipe)
    before = rows(pipe)
    assert sweep(pipe).get("looked_at", 0) == 0
    assert rows(pipe) == before


def test_a_dry_run_counts_and_changes_nothing(pipe: Pipeline) -> None:
    """Given a session that is due, then a dry run says so, and the next run still does it."""
    tell(pipe, *[visit(n) for n in range(40)])
    before = rows(pipe)
    report = sweep_report(pipe, dry_run=True)
    counts = report.counts
    assert counts["due"] == 1
    assert [(p["action"], p["about"], p["text"]) for p in report.planned] == [
        ("summarise", "session s", f"{counts['messages']} messages")
    ]
    assert rows(pipe) == before
    assert sweep(pipe)["messages"] == counts["messages"]


def test_sessions_of_agents_are_apart(pipe: Pipeline) -> None:
    """Given two agents with a session of one name, then each has a summary of its own words."""
    tell(pipe, *[visit(n) for n in range(40)])
    tell(pipe, *[visit(n + 100) for n in range(40)], agent="bob")
    assert sweep(pipe)["summaries"] == 2
    assert "visit 1" in summary(pipe, agent="bob").text
    assert "visit 139" not in summary(pipe).text
    assert summary(pipe).text != summary(pipe, agent="bob").text


def test_a_late_message_with_an_early_time_is_not_taken_for_covered(pipe: Pipeline) -> None:
    """Given a message that comes after the summary and was said before it, then it is uncovered until it is in one."""
    tell(pipe, *[visit(n) for n in range(40)])
    sweep(pipe)
    tell(
        pipe,
        {
            "content": "I forgot: on 3 April I hid the boat key under the third pot.",
            "created_at": "2026-05-01T08:00:00Z",
        },
    )
    found = summary(pipe)
    assert found.covers + found.uncovered == 41
    assert found.upper_sequence < 41
    pipe.advance(25 * HOUR)
    consolidate(pipe)
    assert summary(pipe).uncovered == 0
    assert summary(pipe).upper_sequence == 41
    assert "third pot" in summary(pipe).text


# --- conversations that are over ---


def test_a_conversation_in_which_nothing_is_said_becomes_a_summary_whole(pipe: Pipeline) -> None:
    """Given a short session, then it is left alone for a day and is all summary after it."""
    tell(pipe, *[visit(n) for n in range(6)])
    assert "summaries" not in consolidate(pipe)
    pipe.advance(25 * HOUR)
    assert consolidate(pipe)["summaries"] == 1
    found = summary(pipe)
    assert (found.covers, found.uncovered, found.upper_sequence, found.epoch) == (6, 0, 6, 1)
    assert all(m.content for m in pipe.messages())
    assert consolidate(pipe).get("looked_at", 0) == 0


def test_a_session_that_ended_becomes_a_summary_at_once(pipe: Pipeline) -> None:
    """Given a session that is not active, then it need not be old."""
    tell(pipe, *[visit(n) for n in range(3)])
    with pipe.store.writing() as tx:
        tx.connection.execute(text("UPDATE sessions SET status = 'idle'"))
    assert consolidate(pipe)["summaries"] == 1


def test_a_conversation_that_goes_on_is_appended_to_its_summary(pipe: Pipeline) -> None:
    """Given a summary, when there is more and a day has passed, then what was said since stands behind it."""
    tell(pipe, *[visit(n) for n in range(6)])
    pipe.advance(25 * HOUR)
    consolidate(pipe)
    first = summary(pipe).text
    tell(pipe, "I sold the boat to the harbour master for nine hundred euros.")
    pipe.advance(25 * HOUR)
    consolidate(pipe)
    assert summary(pipe).text.startswith(first)
    assert summary(pipe).text.endswith("nine hundred euros.")


# --- two at once, killed, forgotten, undone ---


def due(pipe: Pipeline, condenser: Condenser = PLAIN) -> Any:
    return due_summary(
        pipe.store, condenser, lambda u: (len(u.message_tokens), "test"), SessionName("ana", "s"), summary_limit=250
    )


def step(pipe: Pipeline, what: Any, condenser: Condenser = PLAIN) -> Any:
    return condense(pipe.store, condenser, what, pipe.store.writing, job=JOB, now=pipe.now())


def test_a_slow_one_never_takes_the_place_of_a_newer_one(pipe: Pipeline) -> None:
    """Given two that read the same state, when one has written, then the other writes nothing and says so."""
    tell(pipe, *[visit(n) for n in range(10)])
    slow = due(pipe)
    assert step(pipe, due(pipe)) == 10
    before = rows(pipe)
    assert step(pipe, slow) is None
    assert rows(pipe) == before
    assert len(entries(pipe)) == 1


def test_a_slow_one_does_not_bring_back_what_was_undone(pipe: Pipeline) -> None:
    """Given one that read before a summary was written and undone, then the epoch alone would not tell: it is stale."""
    tell(pipe, *[visit(n) for n in range(10)])
    slow = due(pipe)
    step(pipe, due(pipe))
    undo_entry(pipe.store, agent="ana", entry=entries(pipe)[0], now=pipe.now())
    assert step(pipe, slow) is None
    assert summary(pipe).epoch == 0


def test_what_is_forgotten_meanwhile_is_not_written_into_its_successor(pipe: Pipeline) -> None:
    """Given a session forgotten and begun anew while it was condensed, then nothing of it comes back."""
    tell(pipe, *[visit(n) for n in range(10)])
    slow = due(pipe)
    pipe.forget()
    with pytest.raises(NotFound):
        step(pipe, slow)
    tell(pipe, "A new beginning.")
    assert step(pipe, slow) is None
    assert summary(pipe).text == ""


def test_a_message_deleted_meanwhile_makes_it_stale(pipe: Pipeline) -> None:
    """Given a message that goes while it is condensed, then nothing is written."""
    tell(pipe, *[visit(n) for n in range(10)])
    slow = due(pipe)
    with pipe.store.writing() as tx:
        tx.connection.execute(text("DELETE FROM messages WHERE sequence = 3"))
    assert step(pipe, slow) is None
    assert summary(pipe).covers == 0


class Killed(BaseException):
    """A worker's death."""


def dying(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Die with the `at`-th transaction of the job: before it begins."""
    original = JobRun.writing
    left = [at]

    @contextmanager
    def writing(run: JobRun) -> Iterator[Transaction]:
        if left[0] == 0:
            raise Killed
        left[0] -= 1
        with original(run) as tx:
            yield tx

    monkeypatch.setattr(JobRun, "writing", writing)


@pytest.fixture(scope="module")
def visited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of a workspace with three sessions of 60 turns."""
    data = tmp_path_factory.mktemp("visited") / "data"
    pipe = Pipeline(data)
    for number in range(3):
        tell(pipe, *({**visit(n), "id": f"{number}-{n}"} for n in range(60)), session=f"s{number}")
    pipe.close()
    return data


@pytest.mark.parametrize("job", [sweep, consolidate])
@pytest.mark.parametrize("at", range(12))
def test_killed_between_any_two_steps_and_run_again_it_ends_the_same(
    visited: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: Callable[..., dict[str, int]], at: int
) -> None:
    """Given a job that dies at its n-th write, when it runs again, then the rows are those of one that did not die."""
    monkeypatch.setattr(summaries, "STEP_MESSAGES", 25)
    monkeypatch.setattr(summary_jobs, "_MESSAGES_PER_PAGE", 30)
    ends = []
    for name in ("whole", "killed"):
        pipe = Pipeline(copy_data(visited, tmp_path / name))
        moment = pipe.now() + 25 * HOUR * 1_000_000
        monkeypatch.setattr(pipe, "now", lambda moment=moment: moment)
        if name == "killed":
            with monkeypatch.context() as patch:
                dying(patch, at)
                with contextlib.suppress(Killed):
                    job(pipe)
        job(pipe)
        ends.append([(s.text, s.epoch, s.upper_sequence, s.covers) for s in (summary(pipe, f"s{n}") for n in range(3))])
        assert len(entries(pipe)) == sum(s[1] for s in ends[-1])
        pipe.close()
    assert ends[0] == ends[1]
    assert all(state[3] > 0 for state in ends[0])


def test_an_undone_summary_leaves_the_rows_as_they_were_and_is_not_made_again(pipe: Pipeline) -> None:
    """Given a summary undone, then the rows are those of before, byte for byte, until something new is said."""
    tell(pipe, *[visit(n) for n in range(40)])
    before = rows(pipe)
    sweep(pipe)
    assert rows(pipe) != before
    undo_entry(pipe.store, agent="ana", entry=entries(pipe)[0], now=pipe.now())
    assert rows(pipe) == before
    pipe.advance(25 * HOUR)
    sweep(pipe)
    consolidate(pipe)
    assert rows(pipe) == before
    tell(pipe, visit(41))
    assert sweep(pipe)["summaries"] == 1
    assert summary(pipe).covers > 0


# --- language models ---


def test_a_model_that_is_away_changes_nothing_where_nothing_may_stand_in(pipe: Pipeline) -> None:
    """Given no fallback, then rows stay as they are while the model is away, and the next run makes it good."""
    tell(pipe, *[visit(n) for n in range(40)])
    before = rows(pipe)
    away = ScriptedLanguageModel([LanguageModelUnavailable("away")])
    assert sweep(pipe, Condenser(COUNTER, away, fallback=False))["not_condensed"] == 1
    assert rows(pipe) == before
    assert entries(pipe) == []
    there = ScriptedLanguageModel([SEAHORSES])
    assert sweep(pipe, Condenser(COUNTER, there, fallback=False))["summaries"] == 1
    assert summary(pipe).text == SEAHORSES
    assert sweep(pipe).get("looked_at", 0) == 0


def test_a_conversation_that_no_model_condenses_holds_up_no_other(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given one that takes up the time of each run, then the next run begins behind it, and the one after with it."""
    for session in ("first", "second"):
        tell(pipe, *[visit(n) for n in range(5)], session=session)
    pipe.advance(25 * HOUR)
    away = Condenser(COUNTER, ScriptedLanguageModel([LanguageModelUnavailable("away")]), fallback=False)
    with monkeypatch.context() as patched:
        patched.setattr(JobRun, "time_is_up", property(lambda run: run.counts["not_condensed"] > 0))
        assert consolidate(pipe, away)["looked_at"] == 1
    there = Condenser(
        COUNTER, ScriptedLanguageModel(["- 2026-05-01 Ann: counted seahorses.", SEAHORSES]), fallback=False
    )
    assert consolidate(pipe, there)["summaries"] == 1
    assert [bool(summary(pipe, session).text) for session in ("first", "second")] == [False, True]
    assert consolidate(pipe, there)["summaries"] == 1
    assert summary(pipe, "first").text == SEAHORSES


def test_a_model_that_is_away_is_stood_in_for(pipe: Pipeline) -> None:
    """Given the fallback, then sentences stand in, and the log says why."""
    tell(pipe, *[visit(n) for n in range(40)])
    sweep(pipe, Condenser(COUNTER, ScriptedLanguageModel(["I cannot do that."])))
    assert "On visit" in summary(pipe).text
    with pipe.store.reading() as tx:
        (entry,) = tx.for_agent("ana").curation.page()
    assert "by its own sentences, for the language model did not answer" in entry.why
    assert (entry.action, entry.session) == ("summarise", "s")


# --- on demand, and what is shown ---


def compact(pipe: Pipeline, budget: int | None) -> Any:
    return compact_session(pipe.store, PLAIN, NUMBERS, agent="ana", session="s", token_budget=budget, now=pipe.now())


def test_a_session_is_compacted_on_demand_to_what_then_restores_without_a_gap(pipe: Pipeline) -> None:
    """Given a session and a window of 400, then after compacting it summary and turns fit, and nothing is untold."""
    tell(pipe, *[visit(n) for n in range(25)])
    assert restore_session(pipe.store, COUNTER, agent="ana", session="s", token_budget=400).uncovered > 0
    done = compact(pipe, 400)
    assert done.condensed == done.summary.covers > 0
    restored = restore_session(pipe.store, COUNTER, agent="ana", session="s", token_budget=400)
    assert restored.uncovered == 0
    assert restored.tokens <= 400
    assert compact(pipe, 400).condensed == 0
    assert [m.id for m in pipe.messages()][-len(restored.messages) :] == [m.id for m in restored.messages]


def test_compacting_without_a_budget_stops_where_a_rolling_summary_does(pipe: Pipeline) -> None:
    """Given 700 of 1,000 in use, then no job is due, and on demand it is brought to half."""
    tell(pipe, *[visit(n) for n in range(25)])
    assert "summaries" not in sweep(pipe)
    assert compact(pipe, None).condensed > 0
    assert compact(pipe, None).condensed == 0


def test_a_budget_too_small_is_an_error_that_says_so(pipe: Pipeline) -> None:
    """Given a budget for nothing, or a session that is not there, then the error names it."""
    with pytest.raises(Rejected, match="token_budget is 255"):
        compact(pipe, 255)
    with pytest.raises(NotFound, match="no session 's'"):
        compact(pipe, 400)
    with pytest.raises(NotFound, match="no session 's'"):
        summary(pipe)


def test_what_is_restored_as_it_was_said_is_not_in_the_summary_too(pipe: Pipeline) -> None:
    """Given a session that is all summary, when there is room for its end, then that comes as it was, once."""
    tell(pipe, *[visit(n) for n in range(12)])
    pipe.advance(25 * HOUR)
    consolidate(pipe)
    restored = restore_session(pipe.store, COUNTER, agent="ana", session="s", token_budget=300)
    assert restored.messages
    shown = {m.content for m in restored.messages}
    assert all(line.partition(": ")[2] not in shown for line in (restored.summary or "").splitlines())
    assert restored.summary
    assert restored.left_out > 0
    assert restored.uncovered == 0
    everything_fits = restore_session(pipe.store, COUNTER, agent="ana", session="s", token_budget=10_000)
    assert everything_fits.summary is None
    assert len(everything_fits.messages) == 12


def test_of_a_summary_too_long_for_a_window_the_newest_lines_are_restored(pipe: Pipeline) -> None:
    """Given a summary over a quarter of the window, then its end is there."""
    tell(pipe, *[visit(n) for n in range(40)])
    sweep(pipe)
    whole = summary(pipe).text.splitlines()
    found = restore_session(pipe.store, COUNTER, agent="ana", session="s", token_budget=200).summary or ""
    assert 0 < len(found.splitlines()) < len(whole)
    assert whole[-len(found.splitlines()) :] == found.splitlines()


def test_vectors_of_the_pipeline_are_read(pipe: Pipeline) -> None:
    """Given a session that was embedded, then its summary is made with its vectors, and it may be another."""
    tell(pipe, *[visit(n) for n in range(40)])
    pipe.settle()
    assert sweep(pipe)["summaries"] == 1
    assert summary(pipe).covers > 0
