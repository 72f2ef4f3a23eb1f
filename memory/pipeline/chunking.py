"""Split messages, files and memories into chunks of at most 640 characters, 96 of them shared with the one before.

The text of a message is its content and the arguments of its tool calls, normalised. A speaker's name is put in front:
"Yes, last Tuesday!" is also found by who said it.
"""

from __future__ import annotations

import json
import re
import time
import unicodedata
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

from blake3 import blake3
from semantic_text_splitter import TextSplitter

from memory.pipeline.questions import questions_in
from memory.stage import STAGE_LEASE_SECONDS, StageReport, bury, crash_error, run_batches
from storage.pipeline.chunks import SourceKind
from storage.pipeline.records import NewChunk, SourceText
from storage.pipeline.work import Claim
from storage.recall.words import with_few_marks
from storage.stores import Store

CHUNK_CHARACTERS: Final = 640
OVERLAP_CHARACTERS: Final = 96
BATCH_SOURCES: Final = 256
# The splitter is quadratic in text without sentences: 1 MiB of one word took 8 s, in parts of this size 0.1 s.
_PART_CHARACTERS: Final = 16_384
# A batch is stored after this time, well before its lease ends: 1 MiB of Chinese takes 1 s to split.
_CUT_SECONDS: Final = 5.0

_SourceStage = Literal["chunk", "chunk-files", "chunk-memories"]
_KINDS: Final[dict[_SourceStage, SourceKind]] = {
    "chunk": "message",
    "chunk-files": "file",
    "chunk-memories": "memory",
}

_BLANKS = re.compile(r"[ \t\r\f\v\u00a0]+")
# One to three words that do not begin with a small letter (a to z here, others are checked where it is used), then a
# colon and a blank.
_LABEL = re.compile(r"((?:[^\W\d_a-z][\w.'-]{0,30})(?: [^\W\d_a-z][\w.'-]{0,30}){0,2}): \S")
_EMPTY_LINES = re.compile(r" ?\n ?(?:\n ?)+")


def chunk_messages(
    store: Store,
    *,
    now: Callable[[], int],
    on_batch: Callable[[list[int]], None],
    on_files: Callable[[list[int]], None] = lambda _: None,
) -> StageReport:
    """Chunk all new messages, files and memories.

    After each commit `on_batch` is called with the rows of messages (an empty list after a batch of something else),
    and `on_files` with the rows of files.
    """

    def on_file_batch(rows: list[int]) -> None:
        on_batch([])
        on_files(rows)

    def batch(report: StageReport) -> bool:
        return (
            _chunk_batch(store, "chunk", now, on_batch, report)
            or _chunk_batch(store, "chunk-memories", now, lambda _: on_batch([]), report)
            or _chunk_batch(store, "chunk-files", now, on_file_batch, report)
        )

    return run_batches(batch)


def _chunk_batch(
    store: Store,
    stage: _SourceStage,
    now: Callable[[], int],
    on_batch: Callable[[list[int]], None],
    report: StageReport,
) -> bool:
    with store.writing() as tx:
        claim = tx.work.claim(stage, now=now(), lease_seconds=STAGE_LEASE_SECONDS, limit=BATCH_SOURCES)
    if claim is None:
        return False
    kind = _KINDS[stage]
    with store.reading() as tx:
        sources = tx.chunks.sources(kind, claim.items)
    error = crash_error(claim)
    if error is not None:
        _bury_sources(store, claim, sources, error, now())
        report.buried += len(sources)
        return True
    pieces = _cut_within(sources, _CUT_SECONDS)
    sources = sources[: len(pieces)]
    _store_chunks(store, claim, kind, sources, pieces, now())
    report.done += len(sources)
    report.traces |= {source.trace for source in sources}
    on_batch([source.row_id for source in sources])
    return True


def _cut_within(sources: list[SourceText], seconds: float) -> dict[int, list[NewChunk]]:
    """Return the chunks by source, for the first sources that can be split within this time but at least one."""
    deadline = time.monotonic() + seconds
    pieces: dict[int, list[NewChunk]] = {}
    for source in sources:
        pieces[source.row_id] = cut(source)
        if time.monotonic() > deadline:
            break
    return pieces


def _store_chunks(
    store: Store, claim: Claim, kind: SourceKind, sources: list[SourceText], pieces: dict[int, list[NewChunk]], now: int
) -> None:
    with store.writing() as tx:
        held = tx.work.still_claimed(claim)
        chunked = [(source, pieces[source.row_id]) for source in sources if source.row_id in held]
        if kind == "message":
            tx.chunks.add_message_chunks(chunked, now=now)
        else:
            for source, parts in chunked:
                tx.chunks.add_document_chunks(kind, source, parts, now=now)
        tx.chunks.mark_chunked(kind, [source.row_id for source, _ in chunked], now=now)
        tx.work.finish(claim, claim.items)  # sources that there was no time for can be claimed again


def _bury_sources(store: Store, claim: Claim, sources: list[SourceText], error: Exception, now: int) -> None:
    with store.writing() as tx:
        held = tx.work.still_claimed(claim)
        for source in sources:
            if source.row_id in held:
                owner = (source.agent, tx.chunks.session_id(source.session_row))
                bury(tx, claim, source.row_id, owner=owner, error=error, now=now)


def cut(source: SourceText) -> list[NewChunk]:
    """Return the chunks of one source; none if it has no text.

    The content hash covers the role, so that a question and its repetition by another speaker stay two chunks.
    """
    speaker = f"{source.name}: " if source.name else ""
    body = normalise(source_text(source.content, source.tool_calls))
    if not body:
        return []
    pieces = split(body, CHUNK_CHARACTERS - min(len(speaker), CHUNK_CHARACTERS // 2))
    texts = [(speaker + piece)[:CHUNK_CHARACTERS] for piece in pieces]
    question = questions_in(normalise(source.before))
    return [
        NewChunk(
            text=text,
            content_hash=blake3(f"{source.role}\x1f{text}".encode()).digest(16),
            lead=question if position == 0 else "",
            speaker=source.name or _speaker_label(body),
        )
        for position, text in enumerate(texts)
    ]


def _speaker_label(body: str) -> str | None:
    """Return the speaker that the text itself names, as transcripts do ("Ada Byron: I moved"), or None."""
    found = _LABEL.match(body)
    if found is None or any(word[0].islower() for word in found.group(1).split(" ")):
        return None
    return found.group(1)


def split(text: str, capacity: int = CHUNK_CHARACTERS) -> list[str]:
    """Split into pieces of at most `capacity` characters, at sentence and word boundaries where possible."""
    if len(text) <= capacity:
        return [text]
    overlap = min(OVERLAP_CHARACTERS, capacity // 4)
    splitter = TextSplitter(capacity, overlap=overlap, trim=True)
    return [piece for part in _parts(text, overlap) for piece in splitter.chunks(part) if piece]


def _parts(text: str, overlap: int) -> Iterator[str]:
    """Split a long text into parts that overlap as chunks do, at a blank where there is one nearby."""
    start = 0
    while len(text) - start > _PART_CHARACTERS:
        end = start + _PART_CHARACTERS
        end = max(text.rfind(blank, end - CHUNK_CHARACTERS, end) for blank in " \n") + 1 or end
        yield text[start:end]
        start = text.find(" ", end - overlap, end - 1) + 1 or end - overlap
    yield text[start:]


def normalise(text: str) -> str:
    """Normalise to NFC, single blanks, at most one empty line, and no blanks at the ends.

    A letter keeps at most 30 combining marks: a megabyte of them would block the stage for minutes.
    """
    text = unicodedata.normalize("NFC", with_few_marks(text))
    return _EMPTY_LINES.sub("\n\n", _BLANKS.sub(" ", text)).strip()


def source_text(content: str, tool_calls: str | None) -> str:
    """Return the content, followed by the names and argument texts of the tool calls (JSON)."""
    if not tool_calls:
        return content
    texts = [content, *(text for call in json.loads(tool_calls) for text in _call_texts(call))]
    return "\n".join(text for text in texts if text)


def _call_texts(call: dict[str, Any]) -> Iterator[str]:
    """Yield the name and the argument texts of a tool call in the format of OpenAI, Anthropic or MCP."""
    function = call.get("function") if isinstance(call.get("function"), dict) else call
    assert isinstance(function, dict)
    if isinstance(function.get("name"), str):
        yield function["name"]
    for key in ("arguments", "args", "input"):
        yield from _leaves(_parsed(function.get(key)))


def _parsed(value: object) -> object:
    if isinstance(value, str):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _leaves(value: object) -> Iterator[str]:
    """Yield the strings in nested JSON, in order; not recursive, since arguments may be nested to any depth."""
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            todo.extend(reversed(list(item.values())))
        elif isinstance(item, list):
            todo.extend(reversed(item))
