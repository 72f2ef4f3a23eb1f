"""mem0's calls on a real server: what is added is found, changed and forgotten, and each user is kept apart."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from memory.lifecycle.erasing import continue_erasures
from reverie import Reverie, Unavailable
from reverie.frameworks.mem0 import AsyncMemory, InvalidCall, Memory, MemoryNotFound
from support.http import running_server
from support.ports import free_port
from support.stages import pipeline_at_work
from worker.runtime import Runtime

EXAMPLE = Path(__file__).parents[2] / "examples" / "mem0_drop_in.py"
KATE: dict[str, Any] = {"user_id": "kate"}


@pytest.fixture
def url(runtime: Runtime) -> Iterator[str]:
    """A server whose pipeline works."""
    with running_server(runtime) as address, pipeline_at_work(runtime):
        yield address


@pytest.fixture
def memory(url: str) -> Iterator[Memory]:
    """mem0's calls on the memories of the agent ana."""
    with Memory(agent="ana", url=url) as memory:
        yield memory


def add(memory: Memory, text: Any, **scope: Any) -> list[dict[str, Any]]:
    """Add messages as they are."""
    return cast("list[dict[str, Any]]", memory.add(text, infer=False, **(scope or KATE))["results"])


def texts(results: dict[str, Any]) -> list[str]:
    return [item["memory"] for item in results["results"]]


def everything(memory: Memory, **filters: Any) -> list[str]:
    return texts(memory.get_all(filters=filters))


def test_messages_are_remembered_as_they_are(memory: Memory) -> None:
    """Given messages in every form, when added with infer=False, then each one but the system's is a memory."""
    assert add(memory, "Takes oat milk")[0]["event"] == "ADD"
    add(memory, {"role": "assistant", "content": "  Noted!\n", "name": "guide"})
    added = add(
        memory,
        [
            {"role": "system", "content": "Be kind"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": None, "tool_calls": [{}]},
            {"role": "user", "content": "Takes oat milk"},
        ],
    )
    assert [(item["memory"], item["role"], item["actor_id"]) for item in added] == [
        ("a\nb", "user", None),
        ("Takes oat milk", "user", None),
    ]
    assert everything(memory, user_id="kate") == ["Takes oat milk", "a\nb", "  Noted!\n", "Takes oat milk"]
    assert memory.add([], user_id="kate") == memory.add("", user_id="kate", infer=False) == {"results": []}


def test_results_have_the_fields_of_mem0(memory: Memory) -> None:
    """Given a memory with everything, then get, get_all and search return the same fields, and a score where due."""
    day = (datetime.now(UTC) + timedelta(days=9)).date().isoformat()
    scope = {"user_id": "kate", "agent_id": "guide", "run_id": "r1"}
    message = {"role": "user", "content": "Takes oat milk", "name": "Kate"}
    (added,) = add(memory, [message], **scope, metadata={"topic": "food"}, expiration_date=day)
    got = memory.get(added["id"])
    assert got is not None
    assert list(got)[:7] == ["id", "memory", "hash", "metadata", "score", "created_at", "updated_at"]
    assert len(got["hash"]) == 32
    assert {name: got[name] for name in (*scope, "actor_id", "role", "expiration_date", "metadata", "score")} == {
        **scope,
        "actor_id": "Kate",
        "role": "user",
        "expiration_date": day,
        "metadata": {"topic": "food"},
        "score": None,
    }
    del got["score"]
    assert memory.get_all(filters=KATE)["results"] == [got]
    (found,) = memory.search("oat milk", filters=KATE, threshold=0)["results"]
    assert 0 <= found.pop("score") <= 1
    assert found == got


def test_scopes_narrow_and_users_are_apart(memory: Memory) -> None:
    """Given memories of two users, agents and runs, then each filter finds what has all that it names."""
    add(memory, "a", user_id="kate", agent_id="guide", run_id="r1")
    add(memory, "b", user_id="kate", agent_id="guide")
    add(memory, "c", user_id="kate", run_id="r2")
    add(memory, "d", user_id="luis", agent_id="guide")
    add(memory, "e", agent_id="guide")
    assert everything(memory, user_id="kate") == ["c", "b", "a"]
    assert everything(memory, user_id="kate", agent_id="guide") == ["b", "a"]
    assert everything(memory, user_id="kate", run_id="*") == ["c", "a"]
    assert everything(memory, user_id=" luis ") == ["d"]
    assert everything(memory, agent_id="guide") == ["e"]
    assert memory.get_all(filters=KATE, top_k=0) == {"results": []}
    assert texts(memory.get_all(filters=KATE, limit=1)) == ["c"]


def test_metadata_is_filtered_by(memory: Memory) -> None:
    """Given memories with metadata, then conditions of every kind hold for those that meet them."""
    for number, name in enumerate(["Oats", "plums", "tea"]):
        add(memory, name, user_id="kate", metadata={"n": number, "name": name, "tags": [name]})
    add(memory, "none", user_id="kate")
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({"n": 1}, ["plums"]),
        ({"n": {"gte": 1, "lt": 2}}, ["plums"]),
        ({"n": {"ne": 1}}, ["none", "tea", "Oats"]),
        ({"n": {"in": [0, 2]}}, ["tea", "Oats"]),
        ({"n": {"nin": [0, 2]}}, ["none", "plums"]),
        ({"n": {"gt": "x"}}, []),
        ({"n": "*"}, ["tea", "plums", "Oats"]),
        ({"name": {"contains": "o"}}, []),
        ({"name": {"icontains": "o"}}, ["Oats"]),
        ({"tags": {"contains": "tea"}}, ["tea"]),
        ({"OR": [{"n": 0}, {"name": "tea"}]}, ["tea", "Oats"]),
        ({"NOT": [{"n": 0}, {"n": 1}]}, ["none", "tea"]),
        ({"AND": [{"n": {"gt": 0}}, {"n": {"lt": 2}}]}, ["plums"]),
        ({"role": "assistant"}, []),
    ]
    for conditions, expected in cases:
        assert everything(memory, user_id="kate", **conditions) == expected, conditions
    found = memory.search("plums tea oats", filters={"user_id": "kate", "n": {"gte": 1}}, threshold=0)
    assert sorted(texts(found)) == ["plums", "tea"]


def test_a_search_returns_the_best_first(memory: Memory) -> None:
    """Given memories, then the one that fits is first with its score, and thresholds and limits leave others out."""
    for text in ("The heron lantern burns", "Takes oat milk in coffee", "Lives in Lisbon"):
        add(memory, text, user_id="kate")
    found = memory.search("oat milk coffee", filters=KATE, threshold=0)["results"]
    assert found[0]["memory"] == "Takes oat milk in coffee"
    assert all(0 <= item["score"] <= found[0]["score"] <= 1 for item in found)
    assert memory.search("oat milk coffee", filters=KATE)["results"] == found
    assert texts(memory.search("oat milk coffee", filters=KATE, threshold=found[0]["score"])) == [found[0]["memory"]]
    assert len(memory.search("oat milk coffee", filters=KATE, threshold=0, limit=1)["results"]) == 1
    assert memory.search("oat milk", filters=KATE, top_k=0) == {"results": []}
    assert memory.search("oat milk", filters={"user_id": "luis"}, threshold=0) == {"results": []}


def test_a_run_is_found_among_more_memories_than_a_search_compares(memory: Memory) -> None:
    """Given a memory of a run and 120 others that fit as well, then a search of the run finds it."""
    add(memory, "tea number 1000", user_id="kate", run_id="rare")
    add(memory, [{"role": "user", "content": f"tea number {number}"} for number in range(120)], user_id="kate")
    found = memory.search("tea number", filters={"user_id": "kate", "run_id": "rare"}, threshold=0)
    assert texts(found) == ["tea number 1000"]


def test_what_a_user_says_is_extracted(memory: Memory) -> None:
    """Given a conversation, when added, then what the server extracts is returned, with its scope and metadata."""
    talk = [
        {"role": "user", "content": "Remember that my locker number is 4711."},
        {"role": "assistant", "content": "I will."},
    ]
    scope = {"user_id": "kate", "agent_id": "guide", "run_id": "r1"}
    (added,) = memory.add(talk, **scope, metadata={"topic": "gym"})["results"]
    assert "4711" in added["memory"]
    got = memory.get(added["id"])
    assert got is not None
    assert {name: got[name] for name in scope} == scope
    assert (got["metadata"], got["attributed_to"]) == ({"topic": "gym"}, "user")
    assert memory.add("How are you?", **scope) == {"results": []}
    (second,) = memory.add("Remember that my gate code word is heron.", **scope)["results"]
    assert everything(memory, **scope) == [second["memory"], added["memory"]]
    assert everything(memory, user_id="luis") == []


def test_a_memory_is_changed_and_its_history_says_so(memory: Memory) -> None:
    """Given a memory, when its text, metadata and last day change, then the rest stays."""
    (added,) = add(memory, "Lives in Porto", user_id="kate", run_id="r", metadata={"a": 1, "b": 1})
    id = added["id"]
    assert [(row["event"], row["new_memory"]) for row in memory.history(id)] == [("ADD", "Lives in Porto")]
    done = {"message": "Memory updated successfully!"}
    assert memory.update(id, metadata={"b": 2, "user_id": "kate"}, expiration_date="2999-01-01") == done
    assert memory.update(id, "Lives in Lisbon") == memory.update(id, data="Lives in Lisbon") == done
    got = memory.get(id)
    assert got is not None
    assert (got["memory"], got["metadata"], got["run_id"]) == ("Lives in Lisbon", {"a": 1, "b": 2}, "r")
    assert got["expiration_date"] == "2999-01-01"
    memory.update(id, expiration_date=None)
    assert "expiration_date" not in cast("dict[str, Any]", memory.get(id))
    assert [(row["event"], row["new_memory"]) for row in memory.history(id)] == [
        ("ADD", None),
        ("UPDATE", "Lives in Lisbon"),
    ]


def test_an_extracted_fact_can_have_another_text(memory: Memory) -> None:
    """Given a fact that was extracted, when its text is changed, twice, then it keeps its id, labels and metadata."""
    scope = {"user_id": "kate", "agent_id": "guide"}
    (added,) = memory.add("I moved to Lisbon in May.", **scope, metadata={"topic": "home"})["results"]
    for text in ("Lives in Lisbon", "Lives in Porto"):
        memory.update(added["id"], text)
        got = memory.get(added["id"])
        assert got is not None
        assert (got["id"], got["memory"], got["metadata"]) == (added["id"], text, {"topic": "home"})
        assert everything(memory, **scope) == [text]
    assert [row["event"] for row in memory.history(added["id"])] == ["ADD", "UPDATE"]
    memory.delete(added["id"])
    assert memory.get(added["id"]) is None
    assert everything(memory, user_id="kate") == []


def test_a_deleted_memory_is_gone(memory: Memory) -> None:
    """Given a deleted memory and unknown ids, then nothing is returned and changes raise a ValueError."""
    (added,) = add(memory, "Lives in Porto", user_id="kate")
    assert memory.delete(added["id"]) == {"message": "Memory deleted successfully!"}
    for id in (added["id"], "nobody", "kate:nothing", "luis:" + added["id"].partition(":")[2]):
        assert memory.get(id) is None
        assert memory.history(id) == []
        for change in (lambda id=id: memory.delete(id), lambda id=id: memory.update(id, "x")):
            with pytest.raises(ValueError, match="there is no memory") as raised:
                change()
            assert isinstance(raised.value, MemoryNotFound)


def test_all_of_a_scope_is_deleted(memory: Memory, url: str) -> None:
    """Given memories and conversations of several scopes, then what is deleted has all that the call names."""
    add(memory, "a", user_id="kate", run_id="r1")
    add(memory, "b", user_id="luis", run_id="r1")
    memory.add("Remember that my locker number is 4711.", user_id="kate", run_id="r1")
    memory.add("Remember that my gate code word is heron.", user_id="kate", run_id="r2")
    with Reverie("ana", url=url) as client:
        assert memory.delete_all(user_id="kate", run_id="r1") == {"message": "Memories deleted successfully!"}
        assert [memory["run_id"] for memory in memory.get_all(filters=KATE)["results"]] == ["r2"]
        assert not client.recall("locker number", mode="keyword", user="kate").results
        memory.delete_all(user_id="kate")
        assert everything(memory, user_id="kate") == client.sessions.list(user="kate") == []
    assert everything(memory, user_id="luis") == ["b"]


def test_a_reset_erases_everything_of_the_agent(memory: Memory, url: str, runtime: Runtime) -> None:
    """Given memories of two agents, when one is reset, then those of all its users are erased, and no others."""
    add(memory, "a", user_id="kate")
    add(memory, "b", user_id="luis")
    with Memory(agent="bob", url=url) as other, pytest.MonkeyPatch.context() as patched:
        add(other, "c", user_id="kate")
        # No worker runs here: what its task does is done between two looks at the progress.
        patched.setattr("time.sleep", lambda _: continue_erasures(runtime.erasure_services))
        memory.reset()
        assert (everything(memory, user_id="kate"), everything(memory, user_id="luis")) == ([], [])
        assert everything(other, user_id="kate") == ["c"]


def test_memories_that_others_stored_are_found(memory: Memory, url: str) -> None:
    """Given a memory that was stored by Reverie's own call, then it is found, changed and keeps its metadata."""
    with Reverie("ana", url=url) as client:
        own = client.remember("Takes oat milk", user="kate", metadata={"topic": "food"}, wait="searchable")
        (item,) = memory.get_all(filters={"user_id": "kate", "topic": "food"})["results"]
        memory.update(item["id"], "Takes soy milk", {"seen": True})
        changed = client.memories.get(own.id, user="kate")
    assert (changed.content, changed.metadata) == ("Takes soy milk", {"topic": "food", "seen": True})


def test_memories_that_were_imported_from_mem0_keep_their_scope(memory: Memory, url: str) -> None:
    """Given a memory as `reverie import mem0` stores it, then it is found by its user, agent and metadata."""
    kept = {"source": "mem0", "agent_id": "guide", "app_id": "x", "metadata": {"topic": "coffee"}}
    with Reverie("ana", url=url) as client:
        client.remember("Takes oat milk", id="mem0:9b2f", user="kate", metadata=kept)
        (item,) = memory.get_all(filters={"user_id": "kate", "agent_id": "guide", "topic": "coffee"})["results"]
        memory.update(item["id"], metadata={"seen": True})
        changed = client.memories.get("mem0:9b2f", user="kate").metadata
    assert item["id"] == "kate:mem0:9b2f"
    assert changed == {**kept, "metadata": {"topic": "coffee", "seen": True}}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "at least one of user_id"),
        ({"user_id": " "}, "user_id"),
        ({"user_id": "a b"}, "whitespace"),
        ({"user_id": "kate", "run_id": "ü" * 100}, "characters together"),
        ({"user_id": "kate", "timestamp": 1}, "timestamp is not supported"),
        ({"user_id": "kate", "memory_type": "procedural_memory"}, "memory_type is not supported"),
        ({"user_id": "kate", "prompt": "x"}, "prompt is not supported"),
        ({"user_id": "kate", "expiration_date": "soon"}, "expiration_date"),
        ({"user_id": "kate", "expiration_date": "2001-01-01"}, "is over"),
        ({"user_id": "kate", "metadata": {"user_id": "luis"}}, "whose a memory is"),
        ({"user_id": "kate", "messages": 7}, "messages must be"),
        ({"user_id": "kate", "messages": [7]}, r"messages\[0\] must be an object"),
        ({"user_id": "kate", "messages": {"role": "queen", "content": "x"}}, "role 'queen'"),
        ({"user_id": "kate", "messages": {"role": "user", "content": [{"type": "image_url"}]}}, "no text"),
        ({"user_id": "kate", "messages": ["x" * 70_000][0], "infer": False}, "at most"),
    ],
)
def test_what_cannot_be_added_is_refused(memory: Memory, arguments: dict[str, Any], message: str) -> None:
    """Given an argument that is invalid or has no counterpart, then a ValueError says so and nothing is added."""
    with pytest.raises(ValueError, match=message):
        memory.add(**{"messages": "x", **arguments})
    assert everything(memory, user_id="kate") == []


def test_what_cannot_be_asked_is_refused(memory: Memory) -> None:
    """Given arguments that a search or a list cannot have, then a ValueError says what to give."""
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "at least one of user_id"),
        ({"filters": {"topic": "x"}}, "at least one of user_id"),
        ({"filters": {"user_id": "*"}}, "kept apart"),
        ({"filters": {"agent_id": "a", "OR": [{"user_id": "kate"}]}}, "named once"),
        ({"filters": {"user_id": "kate", "n": {"like": 1}}}, "operator 'like'"),
        ({"filters": {"user_id": "kate", "OR": []}}, "at least one filter"),
        ({"filters": {"user_id": "kate", "AND": {"n": 1}}}, "must be a list"),
        ({"user_id": "kate"}, "takes user_id in filters"),
        ({"filters": KATE, "top_k": -1}, "top_k"),
        ({"filters": KATE, "show_expired": True}, "show_expired"),
    ]
    for arguments, message in wrong:
        for call in (memory.get_all, lambda **options: memory.search("x", **options)):
            with pytest.raises(InvalidCall, match=message):
                call(**arguments)
    searches: list[tuple[str, dict[str, Any], str]] = [
        (" ", {}, "query"),
        ("x", {"threshold": 2}, "threshold"),
        ("x", {"top_k": 101}, "0 to 100"),
        ("x", {"explain": True}, "explain"),
    ]
    for query, arguments, message in searches:
        with pytest.raises(InvalidCall, match=message):
            memory.search(query, filters=KATE, **arguments)
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        memory.get_all(filters=KATE, colour=1)
    with pytest.raises(InvalidCall, match="at least one"):
        memory.delete_all()
    with pytest.raises(InvalidCall, match="at least one of text"):
        memory.update("x")


def test_a_configuration_says_where_reverie_is(url: str) -> None:
    """Given configurations, then the part for Reverie is used, and what mem0 would set up itself is refused."""
    with Memory.from_config({"version": "v1.1", "reverie": {"agent": "ana", "url": url}, "reranker": None}) as memory:
        add(memory, "a", user_id="kate")
    wrong: list[tuple[Any, str]] = [
        ({"llm": {"provider": "openai"}}, "extraction_model"),
        ({"vector_store": {}}, "server stores"),
        ({"colour": 1}, '"reverie" and "version"'),
        ({"version": "v9"}, "v1.1"),
        ({"reverie": "ana"}, "arguments of"),
        ([], "object"),
    ]
    for config, message in wrong:
        for kind in (Memory, AsyncMemory):
            with pytest.raises(InvalidCall, match=message):
                kind.from_config(config)
    with pytest.raises(TypeError, match="from_config"):
        Memory(cast("Any", {"llm": {}}))
    with Reverie("ana", url=url) as client:
        with pytest.raises(TypeError, match="either a client or these"):
            Memory(client, url=url)
        Memory(client).close()
        assert everything(Memory(client), user_id="kate") == ["a"]


def test_all_calls_can_be_awaited(url: str) -> None:
    """Given AsyncMemory, then each call does what that of Memory does, several at once."""

    async def use() -> None:
        async with AsyncMemory(agent="ana", url=url) as memory:
            await asyncio.gather(*(memory.add(f"tea {n}", user_id="kate", infer=False) for n in range(3)))
            added = await memory.add("Remember that my locker number is 4711.", user_id="kate")
            id = added["results"][0]["id"]
            assert len((await memory.get_all(filters=KATE))["results"]) == 4
            assert (await memory.search("tea", filters=KATE, threshold=0, limit=1))["results"]
            await memory.update(id, metadata={"seen": True})
            got = await memory.get(id)
            assert got is not None
            assert got["metadata"] == {"seen": True}
            assert len(await memory.history(id)) == 1
            await memory.delete(id)
            await memory.delete_all(user_id="kate")
            assert (await memory.get_all(filters=KATE))["results"] == []
            with pytest.raises(InvalidCall, match="llm is not supported"):
                await memory.add("x", user_id="kate", llm=object())

    asyncio.run(use())


def test_conversations_that_are_added_at_once_are_all_extracted(url: str) -> None:
    """Given additions to one session at once, then what each one says is remembered."""

    async def use() -> None:
        async with AsyncMemory(agent="ana", url=url) as memory:
            words = ("locker", "garage", "cellar", "office")
            said = (f"Remember that my {word} number is 47{number}." for number, word in enumerate(words))
            await asyncio.gather(*(memory.add(text, user_id="kate") for text in said))
            kept = " ".join(texts(await memory.get_all(filters=KATE)))
            assert [word for word in words if word not in kept] == []

    asyncio.run(use())


def test_a_server_that_is_down_is_named_in_the_error() -> None:
    """Given no server, then a call says what to do."""
    with Memory(url=f"http://127.0.0.1:{free_port()}") as memory, pytest.raises(Unavailable, match="reverie up"):
        memory.add("x", user_id="kate", infer=False)


@pytest.mark.parametrize("running", [True, False])
def test_the_example_runs_as_it_is(url: str, running: bool) -> None:
    """Given the example, then it finds what Kate said, and without a server it ends with what to do."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("REVERIE_")}
    address = url if running else f"http://127.0.0.1:{free_port()}"
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        env=own | {"REVERIE_URL": address},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if running:
        assert done.returncode == 0, done.stderr
        kate, luis, left = done.stdout.splitlines()[1:]
        assert "4711" in kate
        assert (luis, left) == ("luis: What is my locker number? I know: nothing.", "Left of Kate: []")
    else:
        assert (done.returncode, "reverie up" in done.stderr, "Traceback" in done.stderr) == (1, True, False)
