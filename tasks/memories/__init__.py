"""The task that extracts memories from conversations."""
