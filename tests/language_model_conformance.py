"""What every language model must do. A test class inherits this and gives a `model` that can answer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from adapters.language_models import LanguageModel, LanguageModelRefused


class LanguageModelConformance:
    """Inherit in a class named Test..., and give the fixture `model`."""

    def test_it_answers_with_a_text(self, model: LanguageModel) -> None:
        """Given a question, then the answer is a text that is not empty."""
        found = model.complete("Be brief.", "Where is Lisbon?", 50)
        assert found.text.strip()

    def test_token_counts_are_whole_numbers_or_unknown(self, model: LanguageModel) -> None:
        """Given an answer, then what it took is counted, or None."""
        found = model.complete("", "Where is Lisbon?", 50)
        for count in (found.input_tokens, found.output_tokens):
            assert count is None or (isinstance(count, int) and count >= 0)

    def test_it_has_a_name(self, model: LanguageModel) -> None:
        """Given a model, then it says which one it is."""
        assert model.name

    @pytest.mark.parametrize(("prompt", "max_tokens"), [("", 10), (" \n", 10), ("x", 0), ("\ud800", 10)])
    def test_what_no_model_can_be_asked_is_refused(self, model: LanguageModel, prompt: str, max_tokens: int) -> None:
        """Given an empty prompt, no room for an answer, or no Unicode, then it is refused before anything is sent."""
        with pytest.raises(LanguageModelRefused):
            model.complete("", prompt, max_tokens)

    def test_any_unicode_may_be_asked(self, model: LanguageModel) -> None:
        """Given a prompt of many scripts, quotes and control characters, then it is answered."""
        assert model.complete("„system“", 'Grüße, 東京 🏕️ "quoted" \\ \n\t\x00', 50).text

    def test_it_may_be_asked_from_several_threads(self, model: LanguageModel) -> None:
        """Given eight threads, when all ask, then all are answered."""
        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(lambda n: model.complete("", f"question {n}", 50).text, range(16)))
