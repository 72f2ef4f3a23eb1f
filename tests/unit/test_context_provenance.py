"""A context says in a few words where each memory comes from, and whose word it is if it is not the user's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adapters.tokens import EstimatedTokens
from retrieval.context.write import BuiltContext, build_context
from retrieval.query import RecallRequest
from retrieval.recaller import RecallOutcome
from reverie.clock import from_micros
from reverie.memories.types import Provenance, long_text, place_text, short_text
from storage.viewer import Viewer
from support.contexts import context_request
from support.pipeline import Pipeline
from support.recalling import BagOfWords, find
from support.remembered import MORNING, keep, settle

HOUR = 3_600_000_000
AT = from_micros(MORNING).isoformat()


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """A workspace with a session of kate's, and two older ones."""
    pipe = Pipeline(tmp_path / "data", embedder=BagOfWords())
    pipe.say("hello there", user="kate")
    for message, session, role in (("m-user", "chat-42", "user"), ("m-tool", "mails", "tool")):
        said = {
            "content": "the words of it",
            "id": message,
            "role": role,
            "created_at": from_micros(MORNING).isoformat(),
        }
        pipe.say({**said, **({"tool_name": "mail"} if role == "tool" else {})}, session=session, user="kate")
    settle(pipe)
    yield pipe
    pipe.close()


def told(pipe: Pipeline, user: str = "kate", room: int = 10_000, **memory: Any) -> tuple[str, BuiltContext]:
    """Keep one memory about a boat; return its line in the context of kate's session, and the context."""
    keep(pipe, "boat", "There is a boat", **{"owner_user_id": "kate", "kind": "event", **memory})
    settle(pipe)
    account = pipe.stores.account_store()
    store = pipe.store.seen_by(Viewer(user))
    request = context_request("boat", user=user, now=MORNING + HOUR, instruction_tokens=150)

    def search(asked: RecallRequest) -> RecallOutcome:
        return find(store, pipe.embedder, asked, indexes=pipe.indexes, account=account, now=request.now)

    built = build_context(store, search, EstimatedTokens(), request, room=room, refiner=None, account=account)
    (line,) = [line for line in built.text.splitlines() if "a boat" in line]
    return line, built


@pytest.mark.parametrize(
    ("memory", "place", "mark"),
    [
        (
            {"made_by": "extract-memories", "source": "extraction", "source_message": "m-user", "session": "chat-42"},
            "chat-42",
            "",
        ),
        (
            {"made_by": "dream-sweep", "source": "dream", "source_message": "m-tool", "session": "mails"},
            "mails",
            " (tool, dream)",
        ),
        ({"made_by": "dream-sweep", "source": "dream", "source_message": "gone"}, "", " (unknown, dream)"),
        ({"made_by": "remember", "source": "user"}, "", ""),
        ({"made_by": "remember", "source": "agent", "session": "s"}, "", " (agent)"),
        ({"made_by": "remember", "source": "file:///list"}, "", " (file:///list)"),
        ({"made_by": "remember", "source": "user", "owner_user_id": "mara", "visibility": "shared"}, "", " (mara)"),
        ({"made_by": "import", "source": "user"}, "", " (imported)"),
        ({"made_by": "remember", "source": "(kate) # x"}, "", " (kate x)"),
    ],
    ids=str,
)
def test_a_memory_says_who_where_and_how(pipe: Pipeline, memory: dict[str, Any], place: str, mark: str) -> None:
    """Given a memory, then the line of its day has the session, and its own whose word it is if not the user's."""
    line, built = told(pipe, **memory)
    shown = f" ({place})" if place else ""
    assert f"\n1 May 2026{shown}:\n- event: There is a boat{mark}\n" in built.text
    assert line == f"- event: There is a boat{mark}"
    (found,) = [one for one in built.memories if one.kind == "memory"]
    assert found.provenance is not None
    assert found.provenance.made_by == memory["made_by"]
    assert found.provenance.message == memory.get("source_message")


def test_a_long_session_id_is_told_by_its_reference_code(pipe: Pipeline) -> None:
    """Given a session whose id is a UUID, then the document has its short code."""
    session = "0193e1c0-5b5e-7c3e-9b4e-5a5f3b1f0c11"
    pipe.say("hello", session=session, user="kate")
    settle(pipe)
    line, built = told(pipe, made_by="extract-memories", source="extraction", session=session)
    (found,) = [one for one in built.memories if one.kind == "memory"]
    assert found.provenance is not None
    assert f"\n1 May 2026 ({found.provenance.ref_code}):\n{line}\n" in built.text


def test_memories_of_one_day_and_session_share_its_line(pipe: Pipeline) -> None:
    """Given memories of two sessions in turns, then each session is named once, and messages of the day come first."""
    pipe.say({"content": "the boat is blue", "created_at": AT}, session="b", user="kate")
    for number, session in enumerate(("chat-42", "mails", "chat-42", "mails")):
        keep(
            pipe, f"k{number}", f"Number {number} of the boat has {number + 3} sails", owner_user_id="kate",
            session=session, created_at=MORNING + number, made_by="extract-memories", source="extraction",
        )  # fmt: skip
    _, built = told(pipe, made_by="remember", source="user")
    headings = [line for line in built.text.splitlines() if line.startswith("1 May 2026")]
    assert headings.count("1 May 2026 (chat-42):") == headings.count("1 May 2026 (mails):") == 1
    assert built.text.index("the boat is blue") < built.text.index("1 May 2026 (chat-42):")


def test_with_few_tokens_no_session_is_named(pipe: Pipeline) -> None:
    """Given few tokens for memories, then they are for memories: only whose word it is is told."""
    memory = {"made_by": "dream-sweep", "source": "dream", "source_message": "m-tool", "session": "mails"}
    line, built = told(pipe, room=500, **memory)
    assert line == "- event: There is a boat (tool, dream)"
    assert "mails" not in built.text


def test_messages_cost_no_more_than_before(pipe: Pipeline) -> None:
    """Given messages only, then their lines have a speaker and nothing else."""
    pipe.say({"content": "the boat is blue", "created_at": from_micros(MORNING).isoformat()}, session="b", user="kate")
    _, built = told(pipe)
    assert "- user: the boat is blue\n" in built.text


@pytest.mark.parametrize(
    ("memory", "mark"),
    [
        ({}, ""),
        ({"owner_user_id": "mara", "visibility": "shared"}, " (of mara, for all)"),
        ({"made_by": "import"}, " (import)"),
        ({"source": "tool", "confirmed_at": MORNING}, " (tool)"),
    ],
    ids=str,
)
def test_an_instruction_is_marked_if_it_is_not_the_users_own(pipe: Pipeline, memory: dict[str, Any], mark: str) -> None:
    """Given an instruction in force, then whose it is is told only where it is not the user's or the agent's."""
    line, built = told(pipe, **{"kind": "instruction", **memory})
    assert line == f"- 1 May 2026: There is a boat{mark}"
    assert built.instructions[0].provenance is not None


def test_the_long_form_has_everything() -> None:
    """Given all that can be known, then people read it in one line, and a context fewer words."""
    provenance = Provenance(
        made_by="extract-memories",
        trust="user",
        said_at=from_micros(MORNING),
        user="kate",
        name="Kate",
        session="chat-42",
        message="m1",
        workspace="acme",
    )
    assert long_text(provenance) == (
        "kate Kate (user), 1 May 2026, workspace acme, session chat-42, message m1 (not readable), made by"
        " extract-memories"
    )
    assert short_text(provenance, clean=str) == "kate"
    assert short_text(provenance, clean=str, user="kate") == ""
    assert place_text(provenance, clean=str, here="chat-42") == ""
    assert place_text(provenance, clean=str, here="s") == "chat-42"
