"""Points the processes that tests start to databases of their own: part of `pytest --postgres`.

They are started as ever, with `REVERIE_DATABASE` in their environment, which the processes that they start inherit.
Unlike the process of the tests, whose stores are replaced, they open the database as an installation does. Run as a
module, with the name of another one, it runs that one in a process whose stores are replaced.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest

from support.forks import Program

_DATA: Final = "REVERIE_DATA"
_DATABASE: Final = "REVERIE_DATABASE"
# Open the stores of several folders in their own process.
_REPLACED: Final = ("benchmarks.story",)
_TESTS: Final = Path(__file__).parents[1]


def redirect_started(patch: pytest.MonkeyPatch, url_of: Callable[[Path], str]) -> None:
    """Set the database of each process that names a data folder; `url_of` returns the address of a folder's one."""
    original = subprocess.Popen.__init__

    def start(self: Any, args: Any, *more: Any, **options: Any) -> None:
        words = [] if isinstance(args, str | bytes | os.PathLike) else [str(word) for word in args]
        environment = os.environ if options.get("env") is None else options["env"]
        named = dict(pairwise(words))
        if named.get("-m") in _REPLACED:
            place = words.index("-m") + 1
            args = [*words[:place], __name__, *words[place:]]
            path = os.pathsep.join([str(_TESTS), *filter(None, [environment.get("PYTHONPATH")])])
            options["env"] = {**environment, "PYTHONPATH": path}
        elif _DATABASE not in environment and (folder := _data_folder(named, environment, options.get("cwd"))):
            options["env"] = {**environment, _DATABASE: url_of(folder)}
        original(self, args, *more, **options)

    original_fork = Program.__init__

    def fork(
        self: Any, code: str, words: Sequence[str], environment: Mapping[str, str], log: Path, **more: Any
    ) -> None:
        folder = _data_folder(dict(pairwise(words)), environment, more.get("folder"))
        database = {} if folder is None or _DATABASE in environment else {_DATABASE: url_of(folder)}
        original_fork(self, code, words, {**environment, **database}, log, **more)

    patch.setattr(subprocess.Popen, "__init__", start)
    patch.setattr(Program, "__init__", fork)


def _data_folder(named: Mapping[str, str], environment: Mapping[str, str], cwd: str | Path | None) -> Path | None:
    """Return the data folder of a process by its options and environment; None for one that is not told of one.

    Some make the folder of their stack themselves; the database of each has the name of no folder.
    """
    if named.get("-m", "").startswith(("benchmarks.", "support.compressed_days")):
        return Path("/benchmarks") / uuid4().hex
    folder = named.get("--data") or environment.get(_DATA)
    return Path(cwd or ".") / folder if folder else None


if __name__ == "__main__":
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
