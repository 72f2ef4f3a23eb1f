"""The tasks: each fetches the runtime, calls one function of `memory`, and returns its report."""
