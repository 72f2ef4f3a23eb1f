"""Rows of items and their vectors."""
