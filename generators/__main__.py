"""Writes the generated files, or checks them: `python -m generators [--check] [FILE ...]`, by default all files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from generators import commands, postgres_schema, postgres_statements, settings

_ROOT: Final = Path(__file__).parents[1]
# By the path of the file in the repository: what returns its content.
FILES: Final[Mapping[str, Callable[[], str]]] = {
    "docs/configuration.md": settings.page,
    "docs/cli.md": commands.page,
    "storage/postgres/schema.sql": postgres_schema.schema,
    "storage/postgres/statements.sql": postgres_statements.content,
}


def main(arguments: list[str], root: Path = _ROOT) -> int:
    """Write or check the files that are named, by default all; return 1 if a checked file is out of date.

    Raises SystemExit: for `--help`, unknown options and unknown files.
    """
    parser = argparse.ArgumentParser(prog="python -m generators", description="Write what is generated from the code.")
    parser.add_argument("files", nargs="*", metavar="FILE", help=f"one of {', '.join(FILES)}; by default all")
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is out of date")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.files if name not in FILES]:
        parser.error(f"{unknown[0]} is not generated")
    outdated = 0
    for name in options.files or FILES:
        file, text = root / name, FILES[name]()
        if not options.check:
            file.write_text(text, encoding="utf-8")
        elif not file.exists() or file.read_text(encoding="utf-8") != text:
            sys.stderr.write(f"{name} is out of date: run `make docs`\n")
            outdated = 1
    return outdated


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
