"""Language models behind one Protocol. Reverie works without any; where one is set, it refines and condenses."""

from __future__ import annotations

from adapters.language_models.base import (
    Completion,
    LanguageModel,
    LanguageModelRefused,
    LanguageModelSpec,
    LanguageModelUnavailable,
)
from adapters.language_models.openai_compatible import OpenAICompatibleLanguageModel
from adapters.language_models.scripted import ScriptedLanguageModel

__all__ = [
    "Completion",
    "LanguageModel",
    "LanguageModelRefused",
    "LanguageModelSpec",
    "LanguageModelUnavailable",
    "OpenAICompatibleLanguageModel",
    "ScriptedLanguageModel",
]
