"""Channels: topics within a workspace, one of which is always there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memory.sessions import sessions as topics
from reverie.errors import Conflict, NotFound, Rejected
from reverie.sessions.types import Channel
from support.curating import remember
from support.pipeline import Pipeline

NOW = 1_750_000_000_000_000


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A session in no channel, one in "garden", one that names the default."""
    pipe = Pipeline(tmp_path / "data")
    pipe.say("tulips in a letter", session="plain")
    pipe.say("tulips in the garden", session="g", channel="garden")
    pipe.say("tulips in general", session="named", channel="general")
    pipe.settle()
    yield pipe
    pipe.close()


def listed(pipe: Pipeline, agent: str = "ana") -> dict[str, tuple[int, int]]:
    found = topics.list_channels(pipe.store, agent=agent)
    return {channel.id: (channel.sessions, channel.memories) for channel in found}


def test_the_default_is_always_there_and_holds_what_names_no_channel(pipe: Pipeline) -> None:
    """Given sessions with and without a channel, then the default holds those without, and is listed first."""
    assert list(listed(pipe).items()) == [("general", (2, 0)), ("garden", (1, 0))]
    assert topics.list_channels(pipe.store, agent="bob") == [topics.ONLY_DEFAULT]


def test_a_filter_by_the_default_channel_finds_sessions_that_name_none(pipe: Pipeline) -> None:
    """Given sessions in no channel and in the default, when recalled by "general", then both are found."""
    assert sorted(pipe.found("tulips", channel="general")) == ["tulips in a letter", "tulips in general"]
    assert pipe.found("tulips", channel="garden") == ["tulips in the garden"]
    assert sorted(pipe.found("tulips", scope="channel", session="plain")) == ["tulips in a letter", "tulips in general"]


def test_a_channel_is_made_once(pipe: Pipeline) -> None:
    """Given a channel that only messages have named, when created, then it gets its description; twice is an error."""
    made = topics.create_channel(pipe.store, agent="ana", channel="garden", description="beds", now=NOW)
    assert (made.description, made.sessions, made.is_default) == ("beds", 1, False)
    for taken in ("garden", "general"):
        with pytest.raises(Conflict, match=f"already has a channel '{taken}'"):
            topics.create_channel(pipe.store, agent="ana", channel=taken, now=NOW)
    topics.create_channel(pipe.store, agent="bob", channel="garden", now=NOW)
    default = topics.read_channel(pipe.store, agent="ana", channel="general")
    assert (default.is_default, default.created_at is not None) == (True, True)


def test_a_change_leaves_the_time_since_when_the_default_is_used(pipe: Pipeline) -> None:
    """Given a default channel with older sessions, when a session is moved there, then its time stays."""
    before = topics.read_channel(pipe.store, agent="ana", channel="general").created_at
    topics.move_session(pipe.store, agent="ana", session="g", channel="general", now=pipe.now() + 10**9)
    assert topics.read_channel(pipe.store, agent="ana", channel="general").created_at == before


def test_an_error_counts_one_session_as_one(pipe: Pipeline) -> None:
    """Given a channel with one session, when deleted, then the error speaks of one session."""
    with pytest.raises(Conflict, match="has 1 session and 0 memories: move or forget them first"):
        topics.delete_channel(pipe.store, agent="ana", channel="garden")


def test_a_channel_is_described(pipe: Pipeline) -> None:
    """Given channels, when described, then they say so; one that does not exist is an error."""
    for name in ("general", "garden"):
        described = topics.describe_channel(pipe.store, agent="ana", channel=name, description="about it", now=NOW)
        assert described.description == "about it"
    with pytest.raises(NotFound, match="no channel 'cellar': create it first"):
        topics.describe_channel(pipe.store, agent="ana", channel="cellar", description="", now=NOW)
    with pytest.raises(Rejected, match="description has"):
        topics.describe_channel(pipe.store, agent="ana", channel="garden", description="x" * 5_000, now=NOW)


def test_only_an_empty_channel_is_deleted_and_never_the_default(pipe: Pipeline) -> None:
    """Given channels that hold something, then deleting one is an error that says what; an empty one goes."""
    remember(pipe, "m", tier="channel", channel="garden")
    with pytest.raises(Conflict, match="has 1 session and 1 memory: move"):
        topics.delete_channel(pipe.store, agent="ana", channel="garden")
    with pytest.raises(Conflict, match="is the default channel"):
        topics.delete_channel(pipe.store, agent="ana", channel="general")
    with pytest.raises(NotFound):
        topics.delete_channel(pipe.store, agent="ana", channel="cellar")
    topics.create_channel(pipe.store, agent="ana", channel="cellar", now=NOW)
    topics.delete_channel(pipe.store, agent="ana", channel="cellar")
    assert "cellar" not in listed(pipe)


def test_a_session_is_moved_and_found_where_it_lies_now(pipe: Pipeline) -> None:
    """Given a session, when moved twice to the same channel, then recall by either channel follows."""
    for _ in range(2):
        moved = topics.move_session(pipe.store, agent="ana", session="plain", channel="garden", now=NOW)
        assert moved.channel == "garden"
    assert sorted(pipe.found("tulips", channel="garden")) == ["tulips in a letter", "tulips in the garden"]
    topics.move_session(pipe.store, agent="ana", session="g", channel="general", now=NOW)
    assert listed(pipe) == {"general": (2, 0), "garden": (1, 0)}
    for session, channel in (("nowhere", "garden"), ("g", "cellar")):
        with pytest.raises(NotFound):
            topics.move_session(pipe.store, agent="ana", session=session, channel=channel, now=NOW)


def test_memories_without_a_channel_of_the_channel_tier_lie_in_the_default(pipe: Pipeline) -> None:
    """Given memories of several tiers, then each channel counts its own, superseded ones left out."""
    remember(pipe, "a", tier="channel")
    remember(pipe, "b", tier="channel", channel="garden")
    remember(pipe, "c", tier="workspace")
    old = remember(pipe, "d", tier="channel", channel="garden")
    with pipe.store.writing() as tx:
        memories = tx.for_agent("ana").memories
        memories.supersede(old.row_id, by=memories.get("b").row_id, now=NOW)
    assert listed(pipe) == {"general": (2, 1), "garden": (1, 1)}
    assert isinstance(topics.ONLY_DEFAULT, Channel)
