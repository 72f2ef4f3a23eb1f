"""What happens to a service on a bad day, each case on a stack of its own: see `python -m benchmarks faults`."""
