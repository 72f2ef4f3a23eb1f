"""LongMemEval-S, cleaned (ICLR 2025, xiaowu0162/LongMemEval): questions, each with its own haystack of sessions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.haystack import DatasetMessage, Haystack
from benchmarks.harness.json_lines import read_json_lines
from benchmarks.harness.options import UnusableData

# Depths in distinct sessions.
FIRST: Final = 5
NDCG_DEPTH: Final = 10
# Suffix of questions that nothing in the haystack answers.
_WITHOUT_ANSWER: Final = "_abs"
# "2023/05/30 (Tue) 23:25": the weekday is redundant and depends on the locale.
_WEEKDAY = re.compile(r"\s*\(.*?\)\s*")


@dataclass(frozen=True, slots=True)
class SessionQuestion:
    """A question, the agent whose memory is its haystack, the sessions with the answer, and the answer."""

    text: str
    kind: str
    haystack: Haystack
    gold: frozenset[str]
    answer: str = ""


def load_longmemeval(
    path: Path, *, dates: bool = True, limit: int | None = None, kind: str | None = None
) -> list[SessionQuestion]:
    """Return the answerable questions of a file of JSON lines, compressed or not, at most `limit`.

    With `kind`, only the questions of that type.

    Raises UnusableData: if the file has another format.
    """
    try:
        return list(islice((one for one in _questions(path, dates) if kind in (None, one.kind)), limit))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UnusableData(f"{path} has not the form of LongMemEval: {error!r}") from error


def session_measures(found: Sequence[str], gold: frozenset[str]) -> dict[str, float]:
    """Return all@5 and any@5 (all, or one, of the gold sessions among the first five distinct sessions) and NDCG@10."""
    distinct = list(dict.fromkeys(found))
    hits = gold & set(distinct[:FIRST])
    return {
        f"all_at_{FIRST}": float(hits == gold),
        f"any_at_{FIRST}": float(bool(hits)),
        f"ndcg_at_{NDCG_DEPTH}": _ndcg(distinct, gold),
    }


def _ndcg(distinct: Sequence[str], gold: frozenset[str]) -> float:
    """Return NDCG as in the paper's own code (`src/retrieval/eval_utils.py`): rank 1 in full, rank i by 1 / log2(i)."""
    gains = [1.0 if rank == 1 else 1.0 / math.log2(rank) for rank in range(1, NDCG_DEPTH + 1)]
    reached = sum(gain for gain, session in zip(gains, distinct, strict=False) if session in gold)
    return reached / sum(gains[: len(gold)])


def _questions(path: Path, dates: bool) -> Iterator[SessionQuestion]:
    for entry in read_json_lines(path):
        if not entry["question_id"].endswith(_WITHOUT_ANSWER):
            yield _question(entry, dates)


def _question(entry: Mapping[str, Any], dates: bool) -> SessionQuestion:
    haystack = Haystack(str(entry["question_id"]), list(_messages(entry, dates)))
    return SessionQuestion(
        entry["question"],
        entry["question_type"],
        haystack,
        frozenset(map(str, entry["answer_session_ids"])),
        str(entry.get("answer", "")),
    )


def _messages(entry: Mapping[str, Any], dates: bool) -> Iterator[DatasetMessage]:
    sessions = zip(entry["haystack_session_ids"], entry["haystack_dates"], entry["haystack_sessions"], strict=True)
    # A session may occur twice in a haystack, at two dates: the position tells its messages apart.
    for place, (session, date, turns) in enumerate(sessions):
        began = datetime.strptime(_WEEKDAY.sub(" ", date), "%Y/%m/%d %H:%M").replace(tzinfo=UTC)
        for number, turn in enumerate(turns):
            if turn["content"].strip():
                yield DatasetMessage(
                    id=f"{place}:{number}",
                    session=str(session),
                    role=turn["role"],
                    content=turn["content"],
                    created_at=began + timedelta(seconds=number) if dates else None,
                )
