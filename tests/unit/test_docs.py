"""The pages say what is: every command is described, every command they show exists, every link leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from worker.cli_docs import commands, main, page

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
NAMES = {path for path, _ in commands()}
GROUPS = {path[:length] for path in NAMES for length in range(1, len(path))}
# `reverie` with what may stand before and after a command: options with and without a value.
SHOWN = re.compile(
    r"(?<![\w./-])(?:\.venv/bin/)?reverie((?: --(?:data|workspace|agent|broker) \S+)*)((?: [a-z][a-z-]*)*)"
)
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def code_of(path: Path) -> list[str]:
    """What a page shows as code: fenced lines and inline spans."""
    text = path.read_text(encoding="utf-8")
    fenced = re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return [*(line for block in fenced for line in block.splitlines()), *inline]


def test_the_page_of_commands_is_current() -> None:
    """Given the commands, then the page in the repository is what they give."""
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == page(), "run `make docs`"


def test_every_command_is_described_with_its_options() -> None:
    """Given a command, then its section names each option, and its help says what it does."""
    for path, command in commands():
        section = page().partition(f"\n## {' '.join(path)}\n")[2].partition("\n## ")[0]

        assert command.help, path
        assert command.help.splitlines()[0] in section
        for parameter in command.params:
            assert parameter.name == "help" or parameter.opts[0] in section or parameter.name.upper() in section


def test_an_outdated_page_of_commands_is_refused(tmp_path: Path) -> None:
    """Given a page that differs, then the check says 1; written anew it says 0."""
    outdated = tmp_path / "cli.md"

    assert main(["--check", str(outdated)]) == 1
    assert main([str(outdated)]) == 0
    assert main(["--check", str(outdated)]) == 0


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_command_shown_exists(path: Path) -> None:
    """Given `reverie ...` as code on a page, then it is a command, or a group of commands."""
    unknown = []
    for line in code_of(path):
        for _, words in SHOWN.findall(line):
            shown = ("reverie", *words.split())
            known = any(shown[:length] in NAMES for length in range(2, len(shown) + 1))
            if not known and shown not in GROUPS:
                unknown.append(line)

    assert unknown == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_make_target_shown_exists(path: Path) -> None:
    """Given `make ...` as code on a page, then the Makefile has that target."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    shown = {target for line in code_of(path) for target in re.findall(r"^(?:\$ )?make ([a-z]+)", line)}

    assert shown <= targets


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_link_within_the_repository_leads_somewhere(path: Path) -> None:
    """Given a relative link, then its file exists, and so does the heading that it names."""
    for target, anchor in LINK.findall(path.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        linked = (path.parent / target).resolve()
        assert linked.exists(), target
        if anchor:
            assert anchor[1:] in anchors_of(linked), target + anchor


def anchors_of(path: Path) -> set[str]:
    """The anchors that a Markdown page gets from its headings."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
