"""The settings: one module for each subject, read once from the file, the environment and flags, then frozen."""

from __future__ import annotations

from worker.settings.loading import PREFIX, Settings, config_path, load_settings

__all__ = ["PREFIX", "Settings", "config_path", "load_settings"]
