"""HTTP: the second composition root. It reads through `memory` and `retrieval`, and enqueues as agents do."""
