"""The environment of all tests and of the processes that they start; imported before anything reads it."""

from __future__ import annotations

import functools
import os
import shutil
import sys
import tempfile
from pathlib import Path

import httpcore2
from httpx2 import _config

_SHARED_MEMORY = Path("/dev/shm")
_ENOUGH_BYTES = 4 << 30

# Tests run on all cores already. More threads than cores wait for each other in busy loops: embedding single texts in
# two processes on two cores took thirty times the CPU time.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

# Tests start hundreds of processes. Without compiled modules each would compile the same ones again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A process that crashes says where.
os.environ.setdefault("PYTHONFAULTHANDLER", "1")

# Requests of tests that name no timeout: by default they fail after 5 s, for which a busy machine may stand still. This
# object is the default of every function. What is tested names its own.
for _kind in ("connect", "read", "write", "pool"):
    setattr(_config.DEFAULT_TIMEOUT_CONFIG, _kind, 60.0)

# Each client and each `httpx2.get` would read the certificates of this machine anew, which takes 25 ms.
httpcore2.default_ssl_context = functools.cache(httpcore2.default_ssl_context)

# Most tests open databases of their own and wait for the disk at each commit; none depends on a real one.
if os.access(_SHARED_MEMORY, os.W_OK) and shutil.disk_usage(_SHARED_MEMORY).free > _ENOUGH_BYTES:
    os.environ.setdefault("TMPDIR", str(_SHARED_MEMORY))
    tempfile.tempdir = None  # pytest has asked for it already
