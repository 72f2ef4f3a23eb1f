"""Adapters to what is outside the process: embedders, language models, webhooks, git, and data kept in the broker."""
