"""Language models behind one Protocol. Reverie works without any; where one is set, it refines, extracts, condenses."""

from __future__ import annotations

from adapters.language_models.base import (
    Completion,
    LanguageModel,
    LanguageModelRefused,
    LanguageModelSpec,
    LanguageModelUnavailable,
    Purpose,
    Structured,
)
from adapters.language_models.guarded import GuardedLanguageModel, Prices, Used
from adapters.language_models.openai_compatible import OpenAICompatibleLanguageModel
from adapters.language_models.scripted import ScriptedLanguageModel

__all__ = [
    "Completion",
    "GuardedLanguageModel",
    "LanguageModel",
    "LanguageModelRefused",
    "LanguageModelSpec",
    "LanguageModelUnavailable",
    "OpenAICompatibleLanguageModel",
    "Prices",
    "Purpose",
    "ScriptedLanguageModel",
    "Structured",
    "Used",
]
