"""The HTTP server: reads through `memory` and `retrieval`, and enqueues through the producer, as agents do."""
