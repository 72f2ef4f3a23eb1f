"""The example dashboard and alerts: they load, they fire when they should, and all they ask for exists."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from support.http import running_server
from worker.runtime import Runtime

FOLDER = Path(__file__).resolve().parents[2] / "monitoring"
NEEDS_PROMTOOL = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


def expect_promtool_accepts(*arguments: str | Path, folder: Path = FOLDER) -> str:
    """Run promtool in a folder, assert that it finds no fault, and return its output."""
    ended = subprocess.run(["promtool", *arguments], cwd=folder, text=True, capture_output=True, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def dashboard_queries(panels: list[dict[str, Any]]) -> Iterator[str]:
    for panel in panels:
        for target in panel.get("targets", ()):
            yield target["expr"].replace("$__rate_interval", "5m")


def queries() -> list[str]:
    """Return what the dashboard and the alerts ask for."""
    dashboard = json.loads((FOLDER / "dashboard.json").read_text("utf-8"))
    alerts = yaml.safe_load((FOLDER / "alerts.yml").read_text("utf-8"))
    return [*dashboard_queries(dashboard["panels"]), *(rule["expr"] for rule in alerts["groups"][0]["rules"])]


def test_everything_asked_for_exists(runtime: Runtime, tmp_path: Path) -> None:
    """Given a server with all that can be shown, then each metric of the dashboard and the alerts is one of its own."""
    settings = runtime.settings.model_copy(update={"backup_folder": tmp_path})
    runtime.settings = settings
    with running_server(runtime) as url:
        text = httpx2.get(f"{url}/metrics").text
    existing = {"reverie_backup_newest_timestamp_seconds"}  # once there is a backup
    for family in text_string_to_metric_families(text):
        suffixes = ("_bucket", "_sum", "_count") if family.type == "histogram" else ("_total", "")
        existing.update(family.name + suffix for suffix in suffixes)

    asked = {name for query in queries() for name in re.findall(r"\b(?:reverie|process)_\w+", query)}

    assert len(asked) > 30
    assert asked - existing == set()


@NEEDS_PROMTOOL
def test_the_queries_of_the_dashboard_are_valid(tmp_path: Path) -> None:
    """Given each query as a rule, then promtool can parse it."""
    rules = [{"record": f"panel:query:{number}", "expr": query} for number, query in enumerate(queries())]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}), "utf-8")

    assert "SUCCESS" in expect_promtool_accepts("check", "rules", "rules.yml", folder=tmp_path)


@NEEDS_PROMTOOL
def test_the_alerts_load_and_fire(tmp_path: Path) -> None:
    """Given the alerts and their tests, then promtool has no remark, and each fires when it should."""
    expect_promtool_accepts("check", "rules", "--lint-fatal", "alerts.yml")
    expect_promtool_accepts("test", "rules", "alerts.test.yml")
    expect_promtool_accepts("check", "config", "--syntax-only", "prometheus.yml")


def test_every_alert_has_a_test_and_says_what_to_do() -> None:
    """Given the alerts, then each is named in the tests, has a severity, and says what to do."""
    tests = (FOLDER / "alerts.test.yml").read_text("utf-8")
    for rule in yaml.safe_load((FOLDER / "alerts.yml").read_text("utf-8"))["groups"][0]["rules"]:
        assert rule["alert"] in tests
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert rule["annotations"].keys() == {"summary", "description", "runbook"}
