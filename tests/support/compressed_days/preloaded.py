"""What the processes of the days import, once for all of them: they are forks of a process that has imported this."""

from __future__ import annotations

from support.compressed_days.fast_clock import set_constants
from worker.running import import_for_forks
from worker.settings import load_settings

# First, as some modules take their own copies of constants.
set_constants()
import_for_forks(load_settings())
