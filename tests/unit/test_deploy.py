"""What `deploy/` has for Kubernetes and systemd is valid, and runs what `docker-compose.yml` runs.

The services of Compose are run as processes, with their health checks, by another test.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from support.compose import load_compose
from worker.settings import PREFIX, Settings

DEPLOY = Path(__file__).parents[2] / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
KUSTOMIZATION: dict[str, Any] = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())
POD: dict[str, Any] = yaml.safe_load((KUBERNETES / "pod.yaml").read_text())
COMPOSED: dict[str, Any] = load_compose({"REVERIE_TOKEN": "t", "REVERIE_BROKER_PASSWORD": "p"})["services"]
UNITS = ("reverie.service", "reverie@.service", "reverie-worker@.service")


def merged(base: Any, patch: Any) -> Any:
    """Return what a strategic merge makes of two manifests: objects by key, containers and the like by their name."""
    if isinstance(base, dict) and isinstance(patch, dict):
        return {key: merged(base.get(key), patch.get(key)) for key in {**base, **patch}}
    named = isinstance(base, list) and isinstance(patch, list) and all("name" in one for one in (*base, *patch))
    if named:
        names = list(dict.fromkeys(one["name"] for one in (*base, *patch)))
        by_name = [{one["name"]: one for one in side} for side in (base, patch)]
        return [merged(by_name[0].get(name), by_name[1].get(name)) for name in names]
    return base if patch is None or (isinstance(base, str) and base) else patch


def manifests() -> list[dict[str, Any]]:
    """Return all objects, the deployments with the part that they have in common."""
    found = [
        one for name in KUSTOMIZATION["resources"] for one in yaml.safe_load_all((KUBERNETES / name).read_text()) if one
    ]
    return [merged(one, POD) if one["kind"] == "Deployment" else one for one in found]


OBJECTS = manifests()
DEPLOYMENTS = [one for one in OBJECTS if one["kind"] == "Deployment"]


def container(deployment: dict[str, Any]) -> dict[str, Any]:
    """Return the only container of a deployment."""
    (only,) = deployment["spec"]["template"]["spec"]["containers"]
    found: dict[str, Any] = only
    return found


@pytest.mark.parametrize("manifest", OBJECTS, ids=lambda one: f"{one['kind']} {one['metadata']['name']}")
def test_a_manifest_follows_the_published_schema(manifest: dict[str, Any]) -> None:
    """Given a manifest with the common part, when checked against the schema of its kind, then nothing is unknown."""
    # Raises for what the schema does not have, and returns the version of the schema.
    assert kubernetes_validate.validate(manifest, "1.32", strict=True) == "1.32"


def test_a_wrong_manifest_is_found() -> None:
    """Given a deployment with a field that does not exist, when checked, then that is refused."""
    wrong = merged(DEPLOYMENTS[0], {"spec": {"replica": 2}})
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.32", strict=True)


def test_the_processes_are_those_of_compose() -> None:
    """Given the deployments and the services, then they run the same commands of Reverie."""
    composed = {tuple(service["command"]) for service in COMPOSED.values() if service["command"][0] == "reverie"}
    assert {tuple(container(one)["args"]) for one in DEPLOYMENTS} == composed


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda one: one["metadata"]["name"])
def test_a_probe_is_the_health_check_of_its_service(deployment: dict[str, Any]) -> None:
    """Given a deployment, then it is alive if Compose calls its service healthy; a server has an address to ask."""
    pod = container(deployment)
    (service,) = [one for one in COMPOSED.values() if one["command"] == pod["args"]]
    if "ports" in pod:
        assert pod["readinessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
        return
    assert pod["livenessProbe"]["exec"]["command"] == service["healthcheck"]["test"][1:]
    assert pod["startupProbe"]["exec"]["command"] == service["healthcheck"]["test"][1:]


def test_settings_and_secrets_are_settings_of_reverie() -> None:
    """Given the files of settings, then each line names a setting, and no setting is in both."""
    lines = [
        line
        for name in ("settings.env", "secrets.env.example")
        for line in (KUBERNETES / name).read_text().splitlines()
        if not line.startswith("#")
    ]
    names = [line.partition("=")[0] for line in lines]
    assert len(names) == len(set(names))
    # The operator's token is read by the server alone.
    assert {name.removeprefix(PREFIX).lower() for name in names} <= {"token", *Settings.model_fields}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="the machine has no systemd to check units with")
def test_the_units_of_systemd_are_valid(tmp_path: Path) -> None:
    """Given the units with a program that exists in place of Reverie, when verified, then nothing is wrong."""
    for name in UNITS:
        text = (DEPLOY / "systemd" / name).read_text()
        (tmp_path / name).write_text(text.replace("/opt/reverie/bin/reverie", shutil.which("true") or ""))
    instances = [tmp_path / name.replace("@", "@embed") for name in UNITS]
    command = ["systemd-analyze", "verify", "--man=no", *map(str, instances)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
