"""Thirty simulated days of an agent: what the jobs that curate make of its memories, measured and drawn."""
