"""A context says in a few words where each memory comes from, and whose word it is if it is not the user's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adapters.tokens import EstimatedTokens
from retrieval.context.building import BuiltContext, build_context
from retrieval.recaller import RecallOutcome
from retrieval.request import RecallRequest
from reverie.clock import from_micros
from reverie.memories.provenance_text import long_text, short_text
from reverie.memories.types import Provenance
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


def told(pipe: Pipeline, user: str = "kate", **memory: Any) -> tuple[str, BuiltContext]:
    """Keep one memory about a boat; return its line in the context of kate's session, and the context."""
    keep(pipe, "boat", "There is a boat", **{"owner_user_id": "kate", "kind": "event", **memory})
    settle(pipe)
    account = pipe.stores.account_store()
    store = pipe.store.seen_by(Viewer(user))
    request = context_request("boat", user=user, now=MORNING + HOUR, instruction_tokens=150)

    def search(asked: RecallRequest) -> RecallOutcome:
        return find(store, pipe.embedder, asked, indexes=pipe.indexes, account=account, now=request.now)

    built = build_context(store, search, EstimatedTokens(), request, room=10_000, refiner=None, account=account)
    (line,) = [line for line in built.text.splitlines() if "a boat" in line]
    return line, built


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        (
            {"made_by": "extract-memories", "source": "extraction", "source_message": "m-user", "session": "chat-42"},
            "(kate, chat-42, extracted)",
        ),
        (
            {"made_by": "dream-sweep", "source": "dream", "source_message": "m-tool", "session": "mails"},
            "(tool, kate, mails, dream)",
        ),
        ({"made_by": "dream-sweep", "source": "dream", "source_message": "gone"}, "(unknown, kate, dream)"),
        ({"made_by": "remember", "source": "user"}, "(kate)"),
        ({"made_by": "remember", "source": "agent", "session": "s"}, "(agent, kate)"),
        ({"made_by": "remember", "source": "file:///list"}, "(file:///list, kate)"),
        ({"made_by": "import", "source": "user"}, "(kate, imported)"),
        ({"made_by": "remember", "source": "(kate) # x"}, "(kate x, kate)"),
    ],
    ids=str,
)
def test_a_memory_says_who_where_and_how(pipe: Pipeline, memory: dict[str, Any], expected: str) -> None:
    """Given a memory, then its line ends with who said it, in which session, and which job made it."""
    line, built = told(pipe, **memory)
    assert line == f"- event: There is a boat {expected}"
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
    assert line.endswith(f"(kate, {found.provenance.ref_code}, extracted)")


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
        ({"source": "tool"}, " (tool)"),
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
    assert short_text(provenance, clean=str, here="chat-42") == "kate, extracted"
