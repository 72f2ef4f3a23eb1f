"""Items in erasures, exports and imports: those of a user, and the agent's own in whose namespace the user is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from memory.lifecycle.erasing import continue_erasures
from reverie import Reverie
from support.agents import until
from support.exports import installation, lines_of
from worker.runtime import Runtime

Make = Callable[..., Runtime]


@pytest.fixture
def places(make_runtime: Make, tmp_path: Path) -> Iterator[tuple[Runtime, Reverie, Reverie]]:
    """An installation with items of kate, of luis and of the agent, and an empty one."""
    with (
        installation(make_runtime, tmp_path / "one") as (runtime, ana),
        installation(make_runtime, tmp_path / "two") as (_, other),
    ):
        ana.items.put(["notes"], "own", {"text": "Kate keeps a heron lamp"}, user="kate", ttl_seconds=10**8)
        ana.items.put(["memories", "kate"], "named", {"text": "Kate sails on Thursdays"}, index=["text"])
        ana.items.put(["memories", "katelyn"], "named", {"text": "Katelyn grows plums"})
        ana.items.put(["memories", "kate"], "of luis", {"text": "Luis has a list"}, user="luis")
        yield runtime, ana, other


def left(ana: Reverie, *users: str | None) -> dict[str | None, list[str]]:
    return {user: sorted(item.key for item in ana.items.search(user=user)) for user in users}


def erase(runtime: Runtime, ana: Reverie, **what: Any) -> None:
    erasure = ana.admin.erasures.create(**what)
    until(lambda: continue_erasures(runtime.erasure_services) is not None and is_done(ana, erasure.id), "not erased")


def is_done(ana: Reverie, erasure: str) -> bool:
    found = ana.admin.erasures.get(erasure)
    if found.receipt is not None:
        assert found.receipt.leftovers == {}
    return found.state == "done"


def test_an_erasure_of_a_user_takes_the_items_that_name_the_user(places: tuple[Runtime, Reverie, Reverie]) -> None:
    """Given items of a user and items that name the user, when the user is erased, then these go and no other."""
    runtime, ana, _ = places
    planned = ana.admin.erasures.create(user="kate", dry_run=True)
    assert planned.counts["default"]["items"] == 2
    assert left(ana, "kate", "luis", None) == {"kate": ["own"], "luis": ["of luis"], None: ["named", "named"]}
    erase(runtime, ana, user="kate")
    assert left(ana, "kate", "luis", None) == {"kate": [], "luis": ["of luis"], None: ["named"]}
    assert ana.items.get(["memories", "katelyn"], "named")


def test_an_erasure_of_an_agent_takes_all_its_items(places: tuple[Runtime, Reverie, Reverie]) -> None:
    """Given items of several users, when the agent is erased, then none is left, also if it has nothing else."""
    runtime, ana, _ = places
    erase(runtime, ana, agent="ana")
    assert left(ana, "kate", "luis", None) == {"kate": [], "luis": [], None: []}


def test_items_are_the_same_after_an_export_and_an_import(
    places: tuple[Runtime, Reverie, Reverie], tmp_path: Path
) -> None:
    """Given an export, when imported twice elsewhere, then each item is there once, as it was, and found by meaning."""
    _, ana, other = places
    ana.admin.export_file(tmp_path / "all.jsonl")
    assert other.admin.import_file(tmp_path / "all.jsonl").added == {"items": 4}
    assert other.admin.import_file(tmp_path / "all.jsonl").present == {"items": 4}
    for user, namespace, key in (("kate", ["notes"], "own"), (None, ["memories", "kate"], "named")):
        assert other.items.get(namespace, key, user=user) == ana.items.get(namespace, key, user=user)
    found = other.items.search(query="Kate sails on Thursdays")
    assert (found[0].score, found.degraded != "") == (None, True)


def test_an_export_of_a_user_has_what_names_the_user(places: tuple[Runtime, Reverie, Reverie], tmp_path: Path) -> None:
    """Given an export of one user, then it has that user's items and those that name the user, and no other."""
    _, ana, _ = places
    ana.admin.export_file(tmp_path / "kate.jsonl", user="kate")
    records = [line for line in lines_of(tmp_path / "kate.jsonl") if line["part"] == "items"]
    assert sorted(line["key"] for line in records) == ["named", "own"]


def test_an_import_says_which_items_were_erased_since(places: tuple[Runtime, Reverie, Reverie], tmp_path: Path) -> None:
    """Given an export from before an erasure, when it is imported, then the items of the user count as erased."""
    runtime, ana, _ = places
    ana.admin.export_file(tmp_path / "all.jsonl")
    erase(runtime, ana, user="kate")
    report = ana.admin.import_file(tmp_path / "all.jsonl", dry_run=True)
    assert (report.added, report.erased) == ({"items": 2}, {"items": 2})
