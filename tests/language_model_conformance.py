"""What every language model must do. A test class inherits this and gives a `model` that can answer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest

from adapters.language_models import LanguageModel, LanguageModelRefused


class Place(msgspec.Struct):
    """A form to ask for."""

    city: str
    country: str | None = None


PLACE = '{"city": "Lisbon", "country": "Portugal"}'


class LanguageModelConformance:
    """Inherit in a class named Test..., and give the fixtures `model` and `structured_model`, which says PLACE."""

    def test_it_answers_with_a_text(self, model: LanguageModel) -> None:
        """Given a question, then the answer is a text that is not empty."""
        found = model.complete("Be brief.", "Where is Lisbon?", 50, purpose="refinement")
        assert found.text.strip()

    def test_token_counts_are_whole_numbers_or_unknown(self, model: LanguageModel) -> None:
        """Given an answer, then what it took is counted, or None."""
        found = model.complete("", "Where is Lisbon?", 50, purpose="refinement")
        for count in (found.input_tokens, found.output_tokens):
            assert count is None or (isinstance(count, int) and count >= 0)

    def test_it_has_a_name(self, model: LanguageModel) -> None:
        """Given a model, then it says which one it is."""
        assert model.name

    @pytest.mark.parametrize(("prompt", "max_tokens"), [("", 10), (" \n", 10), ("x", 0), ("\ud800", 10)])
    def test_what_no_model_can_be_asked_is_refused(self, model: LanguageModel, prompt: str, max_tokens: int) -> None:
        """Given an empty prompt, no room for an answer, or no Unicode, then it is refused before anything is sent."""
        with pytest.raises(LanguageModelRefused):
            model.complete("", prompt, max_tokens, purpose="refinement")

    def test_any_unicode_may_be_asked(self, model: LanguageModel) -> None:
        """Given a prompt of many scripts, quotes and control characters, then it is answered."""
        assert model.complete("„system“", 'Grüße, 東京 🏕️ "quoted" \\ \n\t\x00', 50, purpose="refinement").text

    def test_it_may_be_asked_from_several_threads(self, model: LanguageModel) -> None:
        """Given eight threads, when all ask, then all are answered."""
        with ThreadPoolExecutor(8) as pool:
            assert all(
                pool.map(lambda n: model.complete("", f"question {n}", 50, purpose="refinement").text, range(16))
            )

    def test_it_answers_with_a_struct(self, structured_model: LanguageModel) -> None:
        """Given a form, then the answer is of that type, and says what it took."""
        found = structured_model.complete_structured("", "Where is Lisbon?", 50, form=Place, purpose="extraction")
        assert found.value == Place("Lisbon", "Portugal")
        assert found.completion.text == PLACE

    def test_a_text_is_no_struct(self, model: LanguageModel) -> None:
        """Given an answer in prose, then it is refused, and what it took is told."""
        with pytest.raises(LanguageModelRefused, match="Place") as caught:
            model.complete_structured("", "Where is Lisbon?", 50, form=Place, purpose="extraction")
        assert caught.value.completion is not None
        assert caught.value.completion.text

    @pytest.mark.parametrize(("prompt", "max_tokens"), [("", 10), ("x", 0), ("\ud800", 10)])
    def test_what_cannot_be_asked_has_no_struct_either(
        self, structured_model: LanguageModel, prompt: str, max_tokens: int
    ) -> None:
        """Given what no model can be asked, then it is refused before anything is sent."""
        with pytest.raises(LanguageModelRefused):
            structured_model.complete_structured("", prompt, max_tokens, form=Place, purpose="extraction")
