"""Shared parts of the benchmarks: the measured stack, its texts, read access to its database, and the result format."""
