"""Which conversation was that? Sessions found by what was said in them, through the public calls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from reverie.client import Reverie
from reverie.errors import Rejected
from support.command_line import CommandLine
from support.http import running_server
from support.stages import drain
from worker.runtime import Runtime


@pytest.fixture
def url(runtime: Runtime) -> Iterator[str]:
    """A server over three conversations of ana's and one of kate's."""
    with running_server(runtime) as address:
        with Reverie("ana", url=address) as ana, Reverie("kate", url=address) as kate:
            ana.ingest("boats", [_user("The harbour was full of boats."), _user("We rowed in the harbour again.")])
            ana.ingest("violins", [_user("The violin needs new strings."), _user("And the harbour is far away.")])
            ana.ingest("weather", [_user("It rained all day.")])
            kate.ingest("hers", [_user("My boats lie in the harbour.")])
        drain(runtime)
        yield address


def test_the_session_that_fits_best_comes_first(url: str) -> None:
    """Given sessions, when one is searched by words of its own, then it leads, once, with what fits best."""
    with Reverie("ana", url=url) as ana:
        found = ana.sessions.search("a harbour full of boats", mode="keyword")
    assert [session.session for session in found.results] == ["boats", "violins"]
    assert found.results[0].excerpt == "The harbour was full of boats."
    assert found.results[0].messages == 2
    assert found.results[0].ref_code


def test_the_limit_counts_sessions(url: str) -> None:
    with Reverie("ana", url=url) as ana:
        assert len(ana.sessions.search("harbour", mode="keyword", limit=1).results) == 1
        with pytest.raises(Rejected, match="limit"):
            ana.sessions.search("harbour", limit=0)


def test_recall_names_sessions_by_the_same_code_as_a_search(url: str) -> None:
    """Given a message that was found, then its session is the one with the code of the result."""
    with Reverie("ana", url=url) as ana:
        (best,) = ana.recall("violin strings", limit=1)
        assert best.ref_code == ana.sessions.search("violin strings", limit=1)[0].ref_code
        assert ana.sessions.get_by_ref(best.ref_code or "").id == best.session == "violins"


def test_sessions_below_a_floor_are_left_out(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given a floor, then only sessions whose best match reaches it are found, in every face, and none if none does."""
    query = "a harbour full of boats"
    with Reverie("ana", url=url) as ana:
        best, other = ana.sessions.search(query, mode="keyword")
        assert best.relevance > other.relevance > 0
        floor = (best.relevance + other.relevance) / 2
        assert list(ana.sessions.search(query, mode="keyword", min_score=floor)) == [best]
        assert list(ana.sessions.search(query, mode="keyword", min_score=floor, limit=1)) == [best]
        assert list(ana.sessions.search(query, min_score=1.0)) == []
        with pytest.raises(Rejected, match="min_score is 2"):
            ana.sessions.search(query, min_score=2)
    body = {"query": query, "mode": "keyword", "min_score": floor}
    answered = httpx2.post(f"{url}/v1/sessions/search", json=body, headers={"X-Reverie-Agent": "ana"})
    assert [one["session"] for one in answered.json()["results"]] == ["boats"]
    monkeypatch.setenv("REVERIE_URL", url)
    reverie = CommandLine(monkeypatch, capsys, "--agent", "ana")
    shown = reverie("sessions", "search", query, "--mode", "keyword", "--min-score", str(floor)).out
    assert "boats" in shown
    assert f"{best.relevance:.2f}" in shown
    assert "violins" not in shown
    assert reverie("sessions", "search", query, "--min-score", "1").out == "Nothing found.\n"


def test_sessions_of_another_agent_are_never_found(url: str) -> None:
    with Reverie("kate", url=url) as kate:
        assert [session.session for session in kate.sessions.search("harbour").results] == ["hers"]


def test_where_nothing_was_stored_nothing_is_found(url: str) -> None:
    with Reverie("ana", url=url, workspace="empty") as ana:
        found = ana.sessions.search("harbour")
    assert found.results == []
    assert "nothing has been stored" in found.degraded


def test_the_command_line_asks_the_same(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given a running server, when `reverie sessions search` is called, then it prints the same sessions."""
    reverie = CommandLine(monkeypatch, capsys, "--agent", "ana", url=url, data=tmp_path / "other")
    ran = reverie("sessions", "search", "violin strings", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["results"][0]["session"] == "violins"


def _user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}
