"""Runs a module of Reverie where schedules may fire each second and soon give up, as in `PREFIX python -m cli up`.

What it starts is run in the same way. Its processes need the folder of the tests in PYTHONPATH.
"""

from __future__ import annotations

import runpy
import sys
from typing import Final

import cli.stack
from memory.scheduling import executing
from memory.scheduling.rules import ScheduleRules
from worker.settings import Settings

PREFIX: Final = (sys.executable, "-m", "support.quick_schedules")
ATTEMPTS: Final = 2
DISABLED_AFTER: Final = 2
# A receiver of this process that answers at once must not exceed it, however busy the machine is: it would be asked
# again.
WEBHOOK_SECONDS: Final = 5


def main() -> None:
    """Put the limits into the code, and run the module that is named after the interpreter."""
    rules = ScheduleRules(1, runs_kept=1_000, disable_after_failures=DISABLED_AFTER)
    setattr(Settings, "schedule_rules", property(lambda _: rules))  # noqa: B010 - mypy allows no assignment
    executing.WEBHOOK_ATTEMPTS = ATTEMPTS  # type: ignore[misc]
    setattr(executing.AttemptLimits.__init__, "__defaults__", (float(WEBHOOK_SECONDS), 120.0, 10.0))  # noqa: B010
    cli.stack._PYTHON = (sys.executable, "-P", *PREFIX[1:], sys.executable, "-m")  # type: ignore[misc, assignment]
    sys.argv = sys.argv[3:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
