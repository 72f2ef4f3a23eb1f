"""Versions and hardware with which a figure was measured; without them it means nothing."""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Final

import psutil
import pysqlite3

from reverie import __version__

_PACKAGES: Final = {
    "celery": "celery",
    "torch": "torch",
    "sentence_transformers": "sentence-transformers",
    "sqlite_vec": "sqlite-vec",
}
_FLAGS: Final = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "avx512_vnni")


def versions() -> dict[str, str]:
    """Return the versions on which a figure depends."""
    found = {"reverie": __version__, "python": platform.python_version(), "sqlite": str(pysqlite3.sqlite_version)}
    for name, package in _PACKAGES.items():
        try:
            found[name] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    found["valkey"] = _valkey()
    return found


def machine() -> dict[str, object]:
    """Return the processor, its features, and the memory."""
    about = _cpuinfo()
    flags = set(about.get("flags", about.get("Features", "")).split())
    return {
        "cpu": about.get("model name") or platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "flags": [flag for flag in _FLAGS if flag in flags],
        "bf16": bool(flags & {"avx512_bf16", "amx_bf16", "bf16"}),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
    }


def _cpuinfo() -> dict[str, str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _valkey() -> str:
    from worker.supervision.embedded_broker import broker_command

    with tempfile.TemporaryDirectory(prefix="rvb-version-") as name:
        binary = broker_command(Path(name))[0]
    done = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False).stdout
    return next((word.removeprefix("v=") for word in done.split() if word.startswith("v=")), "unknown")
