"""Recall and contexts: one strategy per module, pure where possible, and the recaller that combines them."""
