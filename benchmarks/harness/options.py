"""The options that every benchmark has, and the folder where results go."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
RESULTS: Final = ROOT / "benchmarks" / "results"
DEFAULT_SEED: Final = 20_261_101


class UnusableData(ValueError):
    """A data set that is not there or has another form; its message says which and what is expected."""


def parser(name: str, about: str | None, *, data: bool = True) -> argparse.ArgumentParser:
    """A parser with the options that all benchmarks share."""
    options = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=(about or "").split("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    options.add_argument("--output", type=Path, default=RESULTS / f"{name}.json", help="where the result is written")
    options.add_argument("--seed", type=int, default=DEFAULT_SEED, help="of everything that is random")
    options.add_argument("--quick", action="store_true", help="tiny inputs, to see that it runs; no figures to quote")
    if data:
        options.add_argument("--data", type=Path, help="LoCoMo conversations as JSON; else made-up turns")
    return options


def given(value: int | float | None, *, quick: bool, tiny: float, full: float) -> float:
    """What was asked for on the command line, else the size of this kind of run."""
    if value is not None:
        return value
    return tiny if quick else full


def run(main: Callable[[], None]) -> None:
    """Run a benchmark; Ctrl-C, SIGTERM and unusable data end it in one line, after all that it started was stopped."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted")
    except UnusableData as error:
        sys.exit(str(error))
