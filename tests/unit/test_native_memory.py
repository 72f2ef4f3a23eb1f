"""The memory of a process with a model is limited in a way that leaves recall alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Compares a query with 10,000 vectors, again and again, and prints how many pages the system had to provide for each.
COMPARE = """
import resource

import numpy as np

from adapters.embedders import native_memory
from retrieval.index.agent_index import VectorCodes

native_memory.limit_memory()
rows = np.arange(10_000)
codes = VectorCodes(384)
codes.reserve(len(rows))
codes.put(rows, np.random.default_rng(7).standard_normal((len(rows), 384), dtype=np.float32))
query = np.ones(384, np.float32)
for count in (10, 20):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(count):
        codes.cosines(query, rows)
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / count)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits are set where the C library is glibc")
def test_memory_for_vectors_is_used_again_by_the_next_recall() -> None:
    """Given a process whose memory is limited, when it compares vectors again, then it needs no new pages."""
    done = subprocess.run([sys.executable, "-c", COMPARE], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 100
