"""The jobs that curate memories: consolidation, decay, dreams, retention, and undo."""
