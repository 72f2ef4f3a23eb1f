"""The wheel in an empty environment, an empty folder and an empty HOME: small, and complete."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from benchmarks.harness.folders import short_folder
from support.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.sqlite("shows the defaults")]

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("adapters", "cli", "client", "memory", "retrieval", "server", "storage", "tasks", "worker")
FILES = ("pyproject.toml", "README.md", "LICENSE", "beat_schedule.py")
# The files of all packages, without pip and without the compiled modules that pip adds (86 MB) and uv does not.
MOST_MB = 350


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A folder with a short name, in which the wheel is installed into `venv`."""
    folder = short_folder("rv-")
    source = folder / "source"
    for name in SOURCES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build"))
    for name in FILES:
        shutil.copy(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", folder, source], check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    (wheel,) = folder.glob("*.whl")
    subprocess.run([*pip, "--python", python, "install", "--no-compile", "--no-deps", wheel], check=True)
    copy_required(packages_of(folder))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def packages_of(home: Path) -> Path:
    """Return the folder of the installed packages."""
    return next((home / "venv" / "lib").glob("python*/site-packages"))


def copy_required(packages: Path) -> None:
    """Copy what the installed wheel requires, and nothing else, from the environment of these tests.

    Unpacking the same files took pip 17 s of the processor.
    """
    (wheel,) = importlib.metadata.distributions(path=[str(packages)])
    required = [(wheel, "")]
    copied: set[tuple[str, str]] = set()
    while required:
        distribution, extra = required.pop()
        for requirement in map(Requirement, distribution.requires or ()):
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
                continue
            for part in {"", *requirement.extras} - {part for name, part in copied if name == requirement.name}:
                needed = importlib.metadata.distribution(requirement.name)
                assert requirement.specifier.contains(needed.version), f"{requirement} and {needed.version}"
                if part == "":
                    copy_files(needed, packages)
                copied.add((requirement.name, part))
                required.append((needed, part))


def copy_files(distribution: importlib.metadata.Distribution, packages: Path) -> None:
    """Copy the files of a distribution, with the times by which their compiled modules are known to be theirs."""
    for file in distribution.files or ():
        if ".." not in file.parts and (source := Path(str(file.locate()))).exists():
            target = packages / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def environment(home: Path) -> dict[str, str]:
    return {"PATH": os.defpath, "HOME": str(home / "home"), "PYTHONUNBUFFERED": "1"}


def reverie(home: Path, *arguments: str, codes: tuple[int, ...] = (0,)) -> str:
    """Run a command in an empty folder and return what it printed."""
    folder = home / "empty"
    folder.mkdir(exist_ok=True)
    command = [home / "venv" / "bin" / "reverie", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment(home), capture_output=True, text=True, timeout=90)
    assert done.returncode in codes, done.stdout + done.stderr
    return done.stdout


def wait_until_it_shows(home: Path, text: str, *arguments: str, codes: tuple[int, ...] = (0,)) -> None:
    """Repeat a command until it prints a text: nothing waits for the model, which processes load after their start."""
    deadline = time.monotonic() + 60
    while text not in (shown := reverie(home, *arguments, codes=codes)):
        assert time.monotonic() < deadline, shown
        time.sleep(1)  # each command imports for half a second


def test_the_installation_is_small(home: Path) -> None:
    """Given the wheel and what it needs, then its files take less than 350 MB, and none is torch's."""
    packages = packages_of(home)
    sizes = [file.lstat().st_size for file in packages.rglob("*") if file.is_file() and "__pycache__" not in file.parts]

    print(f"{sum(sizes) / 1e6:.0f} MB in {len(sizes):,} files")
    assert sum(sizes) < MOST_MB * 1_000_000
    assert not (packages / "torch").exists()


def test_the_demonstration_and_the_stack_run_from_the_wheel_alone(home: Path) -> None:
    """Given nothing but the wheel, when the demo runs and then `reverie up`, then the same question has its answer."""
    assert "Walnuts close up my throat" in reverie(home, "demo")

    # Other tests take the usual port meanwhile, and another run of the tests may.
    command = [home / "venv" / "bin" / "reverie", "up", "--port", str(free_port())]
    up = subprocess.Popen(command, cwd=home / "empty", env=environment(home), stdout=subprocess.PIPE, text=True)
    try:
        assert up.stdout is not None
        for line in up.stdout:
            if "http://" in line:
                break
        question = ("--workspace", "demo", "--agent", "demo", "recall", "Am I allergic to anything?")
        wait_until_it_shows(home, "Walnuts close up my throat", *question)
        wait_until_it_shows(home, "int8 on cpu (onnxruntime)", "status")
        wait_until_it_shows(home, "int8 on cpu (onnxruntime)", "doctor", codes=(0, 1))  # a worker may still be starting
    finally:
        up.send_signal(signal.SIGINT)
        up.communicate(timeout=60)
    assert up.returncode == 0
