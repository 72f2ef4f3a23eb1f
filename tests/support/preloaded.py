"""What forks of tests import, but `worker.app` and what needs it: these read the settings when they are imported."""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from typing import Final

from memory.memories.patterns.statements import find_statements

_MODULES: Final = (
    *("celery.app.amqp", "celery.app.control", "celery.app.log", "celery.apps.worker", "celery.backends.base"),
    *("celery.concurrency.prefork", "celery.concurrency.thread", "celery.worker.autoscale", "celery.apps.beat"),
    *("celery.worker.consumer.delayed_delivery", "kombu.transport.redis"),
    *("billiard.popen_fork", "billiard.sharedctypes", "billiard.synchronize"),
    *("memory.cutting", "memory.items.embedding", "memory.memories.extraction", "memory.pipeline.embedding"),
    *("memory.sessions.summary_jobs", "memory.sessions.lifecycle", "memory.trust.tokens"),
    *("memory.upkeep.consolidation", "memory.upkeep.dream_sweep", "memory.upkeep.maintenance"),
    *("retrieval.context", "storage.maintenance", "storage.reindex", "storage.verify"),
    *("worker.backups", "worker.composition", "worker.consumption", "worker.host_upkeep", "worker.pipeline"),
    *("worker.reports", "worker.running", "worker.runtime", "worker.scheduling.goal_context"),
    # What `support.busy_store` needs.
    *("benchmarks.harness.stack", "memory.evaluation", "platformdirs", "server.recall", "support.curating"),
    *("storage.postgres", "support.pipeline"),
    # What a server needs.
    *("adapters.histories", "server.connections", "starlette.applications", "starlette.staticfiles", "uvicorn"),
)

for _name in _MODULES:
    import_module(_name)
assert "worker.app" not in sys.modules
# Otherwise each fork that reads a message compiles the patterns of its first sentence, 0.3 s of CPU.
find_statements("I moved to Lisbon and I like tea.", at=0)
gc.freeze()
