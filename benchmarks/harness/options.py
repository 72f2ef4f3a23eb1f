"""The options common to all benchmarks, and the folder for results."""

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
    """A data set that does not exist or has another format; the message says which one and what is expected."""


def parser(name: str, about: str | None, *, data: bool = True) -> argparse.ArgumentParser:
    """Return a parser with the options common to all benchmarks."""
    options = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=(about or "").split("\n\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    options.add_argument("--output", type=Path, default=RESULTS / f"{name}.json", help="where to write the result")
    options.add_argument("--seed", type=int, default=DEFAULT_SEED, help="seed of everything that is random")
    options.add_argument(
        "--quick", action="store_true", help="tiny inputs, only to see that it runs; no meaningful figures"
    )
    if data:
        options.add_argument("--data", type=Path, help="LoCoMo conversations as JSON; synthetic turns by default")
    return options


def value_or_default(value: int | float | None, *, quick: bool, tiny: float, full: float) -> float:
    """Return the value from the command line, or the default for this kind of run."""
    if value is not None:
        return value
    return tiny if quick else full


def run(main: Callable[[], None]) -> None:
    """Run a benchmark. On Ctrl-C, SIGTERM and unusable data, stop what it started and print one line."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted")
    except UnusableData as error:
        sys.exit(str(error))
