"""Runs a worker or beat in this process: for the commands of these names, and for the forks of `reverie up`."""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Final

from adapters.embedders.native_memory import MODEL_ENVIRONMENT
from reverie import contract
from storage.private_files import write_private_by_default
from worker.settings import PREFIX, Settings
from worker.supervision.processes import end_with_supervisor, lower_priority, raise_file_limit

# Jobs have the lowest priority and their own workers: otherwise a few jobs that wait for a language model would leave
# no process for incoming messages.
_MAINTENANCE_NICENESS: Final = 15
# Runs of schedules mostly wait for webhooks and models, so they use threads.
_SCHEDULES_AT_ONCE: Final = 16
# Flower learns from these events that a worker lives, and how often they come. Celery sends them every 2 s.
_EVENTS_EVERY_SECONDS: Final = 10
# The modules that Celery imports when a worker or beat starts, and our classes that its settings name.
_IMPORTED_AT_START: Final = (
    *("celery.app.amqp", "celery.app.control", "celery.app.log", "celery.backends.base", "kombu.transport.redis"),
    *("celery.concurrency.prefork", "celery.concurrency.thread", "celery.worker.autoscale", "worker.consumer"),
    *("celery.worker.consumer.delayed_delivery", "celery.apps.beat", "worker.beat"),
    *("billiard.popen_fork", "billiard.sharedctypes", "billiard.synchronize"),
)


def environment_of(settings: Settings) -> dict[str, str]:
    """Return the settings as environment variables for child processes.

    Defaults are included: a flag set to a default must win over the environment and `reverie.toml`.
    """
    values = {PREFIX + name.upper(): str(value) for name, value in settings.model_dump(exclude_none=True).items()}
    values[PREFIX + "DATA"] = str(settings.data.resolve())
    return values


def pass_on(settings: Settings) -> None:
    """Write the settings to the environment, from which `worker.app` and child processes read them."""
    os.environ.update(environment_of(settings))
    prepare_for_models()


def prepare_for_models() -> None:
    """Set how much memory the libraries of a model keep and how they wait, unless the environment sets it."""
    for name, value in MODEL_ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def import_for_forks(settings: Settings, *modules: str) -> None:
    """Import `modules` and what workers and beat need, once for all forks of this process, and share its memory."""
    pass_on(settings)
    gc.disable()  # imported objects stay: looking for garbage among them took a fifth of the time
    from worker.app import app

    app.loader.import_default_modules()  # the tasks
    for name in (*modules, *_IMPORTED_AT_START):
        import_module(name)
    with suppress(OSError):
        # Each child of a pool calls billiard's `set_pdeathsig`, which parses C: this makes the parser, 0.07 s of CPU.
        import_module("billiard.util").get_pdeathsig()
    share_memory()


def share_memory() -> None:
    """Exclude the present objects from garbage collection, which would write to, and so copy, each in every fork."""
    gc.collect()
    gc.freeze()
    gc.enable()


def run_worker(
    settings: Settings, queues: Sequence[str], concurrency: int | None, autoscale: int | None = None
) -> None:
    """Run a worker for these queues until it is stopped; if these are only schedules, with threads, not processes.

    It has `concurrency` processes, and up to `autoscale` while tasks wait; these end once there is nothing to do.
    """
    write_private_by_default()
    raise_file_limit()
    pass_on(settings)
    end_with_supervisor(os.environ)
    # Unique on a host, so that `reverie status` can distinguish workers of the same queues.
    os.environ.setdefault(PREFIX + "PROCESS", f"{'-'.join(queues)}-{os.getpid()}")
    from celery.utils.nodenames import host_format

    from worker.app import app, prepare_threads

    threads = list(queues) == [contract.QUEUE_SCHEDULES]
    if threads:
        prepare_threads()
    # Not `app.worker_main`: Celery's command line imports 335 modules in each worker, a prompt and Flower among them.
    worker = app.Worker(
        hostname=host_format(f"{os.environ[PREFIX + 'PROCESS']}@%h"),
        queues=",".join(queues),
        pool_cls="threads" if threads else "prefork",
        concurrency=concurrency or (_SCHEDULES_AT_ONCE if threads else 1),
        autoscale=(max(autoscale, concurrency or 1), concurrency or 1) if autoscale and not threads else None,
        without_gossip=True,
        without_mingle=True,
        heartbeat_interval=_EVENTS_EVERY_SECONDS,
        loglevel=settings.log_level,
    )
    if set(queues) <= {contract.QUEUE_MAINTENANCE, contract.QUEUE_EXTRACTION}:
        # Not earlier: importing all this at a low priority takes minutes on a busy machine, with jobs that wait.
        lower_priority(_MAINTENANCE_NICENESS)
    worker.start()


def run_beat(settings: Settings) -> None:
    """Run the scheduler that sends periodic jobs until it is stopped."""
    write_private_by_default()
    pass_on(settings)
    end_with_supervisor(os.environ)
    os.environ.setdefault(PREFIX + "PROCESS", "beat")
    from worker.app import app

    app.Beat(quiet=True, loglevel="INFO").run()
