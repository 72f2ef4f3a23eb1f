"""Recall events: what recalls found, recorded off the read path."""
