"""Language models behind one Protocol. They are optional: Reverie uses one to refine, extract and condense."""

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
from adapters.language_models.guarded import GuardedLanguageModel, ModelUsage, Prices
from adapters.language_models.openai_compatible import OpenAICompatibleLanguageModel
from adapters.language_models.scripted import ScriptedLanguageModel

__all__ = [
    "Completion",
    "GuardedLanguageModel",
    "LanguageModel",
    "LanguageModelRefused",
    "LanguageModelSpec",
    "LanguageModelUnavailable",
    "ModelUsage",
    "OpenAICompatibleLanguageModel",
    "Prices",
    "Purpose",
    "ScriptedLanguageModel",
    "Structured",
]
