"""Tasks of erasure."""
