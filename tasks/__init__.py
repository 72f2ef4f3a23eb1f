"""Wire to call: each task fetches the runtime, calls one function of `memory`, and returns its report."""
