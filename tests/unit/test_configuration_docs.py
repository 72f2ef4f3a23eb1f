"""`docs/configuration.md` says what the settings are, because it is written from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from worker.settings import Settings
from worker.settings_docs import main, page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"


def test_the_page_is_current() -> None:
    """Given the settings, then the page in the repository is what they give."""
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


def test_every_setting_has_a_row_with_a_description() -> None:
    """Given a setting, then its row says what it is for."""
    for key, field in Settings.model_fields.items():
        row = next(line for line in page().splitlines() if line.startswith(f"- `{key}`"))

        assert field.description
        assert field.description in row


def test_an_outdated_page_is_refused_with_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Given a page that differs, when it is checked, then the answer is 1 and names `make docs`; written, it is 0."""
    outdated = tmp_path / "configuration.md"
    outdated.write_text("# Configuration\n")

    assert main(["--check", str(outdated)]) == 1
    assert "make docs" in capsys.readouterr().err
    assert main([str(outdated)]) == 0
    assert main(["--check", str(outdated)]) == 0


@pytest.mark.parametrize(("option", "status"), [("--help", 0), ("--chekc", 2)])
def test_an_option_is_never_taken_for_the_name_of_the_page(
    option: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given `--help` or an option that does not exist, then nothing is written and the exit code says which it was."""
    monkeypatch.chdir(tmp_path)

    with pytest.raises(SystemExit) as ended:
        main([option])

    assert ended.value.code == status
    assert list(tmp_path.iterdir()) == []
