"""What Prometheus reads: counters of all processes, by its conventions, and the page that describes them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from reverie import Reverie
from support.http import running_server
from support.metrics import metric_names, samples
from support.stages import run_stage_tasks
from worker.runtime import Runtime

ROOT = Path(__file__).resolve().parents[2]
NEEDS_PROMTOOL = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


def test_a_message_is_counted_on_its_way(runtime: Runtime) -> None:
    """Given two messages through all stages and a recall, then each state, stage and call is counted once for each."""
    with running_server(runtime) as url, Reverie("ana", url=url) as memory:
        memory.ingest("s", [{"role": "user", "content": text} for text in ("one apple", "two pears")])
        run_stage_tasks(runtime)
        memory.recall("apple")
        memory.context("s", query="pears")

        found = samples(httpx2.get(f"{url}/metrics").text)
        again = samples(httpx2.get(f"{url}/metrics").text)

    assert found["reverie_accepted_items_total", ()] == 2
    assert found["reverie_ingested_items_total", ("stored",)] == 2
    for state in ("stored", "chunked", "embedded", "searchable"):
        assert found["reverie_message_latency_seconds_count", (state,)] == 2, state
    assert found["reverie_embedded_texts_total", ("store",)] == 2
    assert found["reverie_embedding_calls_total", ("done", "query")] == 2
    assert found["reverie_tasks_total", ("done", "ingest_messages")] == 1
    assert found["reverie_recall_duration_seconds_count", ("false",)] == 1
    assert found["reverie_context_duration_seconds_count", ("false",)] == 1
    # Reading adds nothing.
    assert again["reverie_ingested_items_total", ("stored",)] == 2


def test_a_server_that_was_started_again_counts_on(runtime: Runtime) -> None:
    """Given a restart of the server, then what workers have counted is still there."""
    with running_server(runtime) as url, Reverie("ana", url=url) as memory:
        memory.ingest("s", {"role": "user", "content": "one apple"})
        run_stage_tasks(runtime)
    with running_server(runtime) as url:
        assert samples(httpx2.get(f"{url}/metrics").text)["reverie_ingested_items_total", ("stored",)] == 1


@NEEDS_PROMTOOL
def test_prometheus_finds_nothing_to_criticise(runtime: Runtime) -> None:
    """Given the metrics after some work, then `promtool check metrics` has no remark."""
    with running_server(runtime) as url, Reverie("ana", url=url) as memory:
        memory.ingest("s", {"role": "user", "content": "one apple"})
        run_stage_tasks(runtime)
        text = httpx2.get(f"{url}/metrics").text
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, capture_output=True, timeout=60)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_the_page_describes_every_metric(runtime: Runtime) -> None:
    """Given the metrics that exist, then operations.md names each of them, and no other."""
    with running_server(runtime) as url:
        families = list(text_string_to_metric_families(httpx2.get(f"{url}/metrics").text))
    existing = {name for name in metric_names(families) if name.startswith("reverie_")}
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    table = page.partition("| about | metrics |")[2].partition("\n\n")[0]
    described = set(re.findall(r"`(reverie_\w+)`", table))
    # Shown once there is a backup folder, or a backup.
    assert described - {"reverie_backup_interval_seconds", "reverie_backup_newest_timestamp_seconds"} == existing
