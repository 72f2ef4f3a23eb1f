"""What does not fit a call is refused in words: the field, what it must be, and the nearest name of an unknown one."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reverie.decoding import check_keys, convert, rejected
from reverie.errors import Rejected
from reverie.memories.calls import ImportMemories, Remember
from reverie.pipeline.calls import IngestMessages
from reverie.pipeline.submission import MessageInput
from reverie.recall.calls import Recall

_TEXTS: Final = st.text('ab"\\\n\u00e9', max_size=3) | st.just("\ud800")
_JSON: Final = st.one_of(_TEXTS, st.integers(), st.booleans(), st.none()).map(json.dumps)


def _list_of(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")


def _object_of(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.lists(st.tuples(_TEXTS.map(json.dumps), inner), max_size=3)
    return pairs.map(lambda found: "{" + ", ".join(f"{key}: {value}" for key, value in found) + "}")


def test_a_key_that_is_twice_in_an_object_is_named() -> None:
    """Given the JSON of others, then a key is refused whose first value would get lost, wherever it stands."""
    quoted = rb'{"a\\": "\"", "b": "c\\\"d"'
    for text in (b'{"b": 1, "b": 1}', b'[[{"a": [{"b": {}, "c": 1, "b": {}}]}]]', quoted + b', "b": 2}'):
        with pytest.raises(Rejected, match="body has the key 'b' twice in one object: send it once") as raised:
            check_keys(text, name="body")
        assert raised.value.field == "b"
    with pytest.raises(Rejected, match="the key '\\?' twice"):
        check_keys(rb'{"\ud800": 1, "\ud800": 1}', name="body")


@given(text=st.recursive(_JSON, lambda inner: _list_of(inner) | _object_of(inner), max_leaves=20))
def test_a_key_is_refused_exactly_where_an_object_has_it_twice(text: str) -> None:
    """Given any JSON, then it is refused if a reader that sees every pair finds two with one key."""
    pairs = list[list[str]]()
    json.loads(text, object_pairs_hook=lambda found: pairs.append([key for key, _ in found]))
    if any(len(set(keys)) < len(keys) for keys in pairs):
        with pytest.raises(Rejected):
            check_keys(text.encode(), name="body")
    else:
        check_keys(text.encode(), name="body")


@pytest.mark.parametrize(
    ("kind", "raw", "field", "error"),
    [
        (
            MessageInput,
            {"role": "user", "contents": "x"},
            "contents",
            "unknown field 'contents': did you mean content?",
        ),
        (Recall, {"query": "x", "kind": ["memory"]}, "kind", "unknown field 'kind': did you mean kinds?"),
        (IngestMessages, {}, "messages", "messages is required"),
        (IngestMessages, {"messages": "x"}, "messages", "messages must be a list, not a text"),
        (IngestMessages, {"messages": {"role": "user"}}, "messages", "messages must be a list, not an object"),
        (IngestMessages, {"messages": [], "session": 7}, "session", "session must be a text, not a whole number"),
        (IngestMessages, {"messages": [], "strict": 1}, "strict", "strict must be true or false, not a whole number"),
        (MessageInput, {"role": "user", "tags": "t"}, "tags", "tags must be a list, not a text"),
        (MessageInput, {"role": "user", "tags": ["a", 1]}, "tags[1]", "tags[1] must be a text, not a whole number"),
        (MessageInput, {"role": "user", "importance": "high"}, "importance", "importance must be a number, not a text"),
        (Remember, {"content": None}, "content", "content must be a text, not null"),
        (
            Remember,
            {"content": "x", "importance": "high"},
            "importance",
            "importance must be a number from 0 to 1, not a text",
        ),
        (
            Recall,
            {"query": "x", "kinds": "memory"},
            "kinds",
            "kinds must be a list, not a text; it must be one of message, file, memory",
        ),
        (MessageInput, {"role": "user", "metadata": {1: 2}}, "metadata", "metadata has a key that is not a text"),
        (MessageInput, {"role": "user", 3: 4}, "", "body has a key that is not a text"),
        (ImportMemories, {"memories": [{"id": "m"}]}, "memories[0].agent", "memories[0].agent is required"),
    ],
)
def test_a_value_that_does_not_fit_is_named_in_words(kind: Any, raw: dict[str, Any], field: str, error: str) -> None:
    """Given a wrong type, a missing or an unknown field, then the error says so without the notation of a library."""
    with pytest.raises(Rejected) as raised:
        convert(raw, kind, name="body")
    assert str(raised.value) == error
    assert raised.value.field == field


def test_an_unknown_field_without_a_near_name_lists_the_known_ones() -> None:
    """Given a field that resembles none, then all that exist are named."""
    with pytest.raises(Rejected, match="unknown field 'zzz': known are role, content, id, created_at, name"):
        convert({"role": "user", "zzz": 1}, MessageInput, name="message")


def test_a_value_that_is_no_object_is_called_by_its_type() -> None:
    """Given a list or null in place of an object, then the error says what it is."""
    with pytest.raises(Rejected, match=r"^body must be an object, not a list$"):
        convert([], Recall, name="body")
    with pytest.raises(msgspec.ValidationError) as raised:
        msgspec.json.decode(b"null", type=Recall)
    assert str(rejected(raised.value, Recall, name="body")) == "body must be an object, not null"


# Each call is converted for the first time by eight threads at once.
_FIRST_USES = """
import sys, threading
from reverie import Reverie, calls, decoding
from reverie.errors import Rejected

def below(kind):
    for one in kind.__subclasses__():
        yield from (one, *below(one))

def use():
    for kind in kinds:
        together.wait()
        try:
            decoding.convert(dict.fromkeys(kind.__struct_fields__[::-1], "x"), kind, name="call", from_text=True)
        except Rejected:
            pass

Reverie  # imports all calls
kinds = [one for one in dict.fromkeys(below(calls.Call)) if one.__struct_fields__]
assert len(kinds) > 100
sys.setswitchinterval(1e-6)
together = threading.Barrier(8)
threads = [threading.Thread(target=use) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_threads_may_use_a_type_for_the_first_time_at_once() -> None:
    """Given calls that no thread has made yet, when eight threads make each at once, then the process lives on.

    Where msgspec describes a type in two threads at once, five of six such processes die of a segmentation fault.
    """
    done = subprocess.run([sys.executable, "-c", _FIRST_USES], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
