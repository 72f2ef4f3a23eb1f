"""Retention: messages that a summary covers end when the operator says; nothing else ever does."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from memory.jobs import RunOptions
from memory.upkeep import maintenance
from memory.upkeep.maintenance import apply_retention
from reverie.clock import from_micros, rfc3339
from reverie.errors import Unavailable
from reverie.sessions.working import working_key
from storage.verify import verify
from support.curating import everything
from support.pipeline import WORKSPACE, Pipeline

DAY_SECONDS = 24 * 3_600


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A session of six messages of which a summary covers the first four; "tea" is said in the first and the last."""
    pipe = Pipeline(tmp_path / "data")
    pipe.say("tea", "walnuts", "figs", "plums", "quinces", {"content": "tea"})
    pipe.settle()
    summarise(pipe, up_to=4)
    yield pipe
    pipe.close()


def summarise(pipe: Pipeline, *, up_to: int, session: str = "s", summary: str = "what was eaten") -> None:
    with pipe.store.writing() as tx:
        parameters = {"to": up_to, "session": session, "summary": summary, "now": pipe.now()}
        tx.connection.execute(
            text(
                "UPDATE sessions SET summary_text = :summary, summary_epoch = 1, summary_upper_sequence = :to"
                " WHERE id = :session"
            ),
            parameters,
        )
        tx.connection.execute(
            text(
                "UPDATE messages SET consolidated_at = :now WHERE sequence <= :to"
                " AND session_row = (SELECT row_id FROM sessions WHERE id = :session)"
            ),
            parameters,
        )


def apply(pipe: Pipeline, days: float | None = 30, **more: Any) -> dict[str, Any]:
    counts = apply_retention(pipe.stores, pipe.working, now=pipe.now(), keep_days=days, **more)
    return {name: count for name, count in counts.items() if name != "stores"}


def test_only_summarised_messages_that_are_old_enough_go(pipe: Pipeline) -> None:
    """Given 31 days, then the messages in the summary are gone with their words and vectors, the others are there."""
    assert apply(pipe) == {}
    pipe.advance(31 * DAY_SECONDS)
    assert apply(pipe, None) == {}
    before = everything(pipe.store)
    assert apply(pipe, options=RunOptions(dry_run=True)) == {"messages": 4}
    assert everything(pipe.store) == before
    assert apply(pipe) == {"messages": 4, "chunks": 3}
    assert pipe.contents() == ["quinces", "tea"]
    assert [pipe.found(word) for word in ("walnuts", "figs", "plums", "tea")] == [[], [], [], ["tea"]]
    assert verify(pipe.store).wrong == []
    after = everything(pipe.store)
    assert apply(pipe) == {}
    assert everything(pipe.store) == after


def test_what_no_summary_covers_stays_however_old(pipe: Pipeline) -> None:
    """Given messages marked as consolidated without a summary, or beyond what it covers, then they stay."""
    pipe.advance(10_000 * DAY_SECONDS)
    with pipe.store.writing() as tx:
        tx.connection.execute(text("UPDATE messages SET consolidated_at = 1"))
        tx.connection.execute(text("UPDATE sessions SET summary_upper_sequence = 1"))
    assert apply(pipe)["messages"] == 1
    with pipe.store.writing() as tx:
        tx.connection.execute(text("UPDATE sessions SET summary_upper_sequence = 6, summary_text = ''"))
    assert apply(pipe) == {}
    assert len(pipe.messages()) == 5


def test_an_old_conversation_that_was_brought_in_lately_is_kept_as_long_as_others(pipe: Pipeline) -> None:
    """Given messages of a year ago that are stored now, then their days begin now."""
    long_ago = rfc3339(pipe.now() - int(timedelta(days=365).total_seconds()) * 1_000_000)
    pipe.say({"content": "from the archive", "created_at": long_ago}, session="old")
    pipe.settle()
    summarise(pipe, up_to=1, session="old")
    assert from_micros(pipe.messages("old")[0].created_at).year < from_micros(pipe.now()).year + 1
    assert apply(pipe) == {}
    pipe.advance(31 * DAY_SECONDS)
    assert apply(pipe)["messages"] == 5


def test_the_messages_at_hand_in_the_broker_go_too(pipe: Pipeline) -> None:
    """Given a session whose newest messages are cached, then the cache is dropped with the messages."""
    pipe.working.fill(WORKSPACE, "ana", "s", [], epoch=pipe.working.epoch(WORKSPACE, "ana", "s"))
    key = working_key(pipe.prefix, WORKSPACE, "ana", "s")
    pipe.broker.rpush(key, b"{}")
    pipe.advance(31 * DAY_SECONDS)
    apply(pipe)
    assert not pipe.broker.exists(key)


def test_batches_are_bounded_and_a_kill_between_them_loses_nothing(
    pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given one message a batch and a kill after the second, when run again, then the end is the same."""
    monkeypatch.setattr(maintenance, "BATCH_MESSAGES", 1)
    pipe.advance(31 * DAY_SECONDS)
    drops = iter([None, None, None, KeyboardInterrupt()])
    drop = pipe.working.drop

    def drop_or_die(*given: Any) -> None:
        drop(*given)
        if error := next(drops, None):
            raise error

    monkeypatch.setattr(pipe.working, "drop", drop_or_die)
    with pytest.raises(KeyboardInterrupt):
        apply(pipe)
    assert len(pipe.messages()) == 4
    assert verify(pipe.store).wrong == []
    assert apply(pipe) == {"messages": 2, "chunks": 2}
    assert pipe.contents() == ["quinces", "tea"]


def test_without_a_broker_nothing_is_removed(pipe: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a broker that is away, then the messages stay: they could still be read from what is at hand there."""
    pipe.advance(31 * DAY_SECONDS)

    def away(*_: object) -> None:
        raise Unavailable("the broker is away")

    monkeypatch.setattr(pipe.working, "drop", away)
    assert apply(pipe)["errors"] == 1
    assert len(pipe.messages()) == 6
