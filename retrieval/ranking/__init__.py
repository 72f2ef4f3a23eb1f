"""The scores of the retrievers, and the ways in which they become one ranking."""
