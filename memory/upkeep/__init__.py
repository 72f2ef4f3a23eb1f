"""The jobs that curate memories and keep stores in order: consolidation, decay, dreams, notebooks and retention."""
