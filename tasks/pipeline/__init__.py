"""Tasks of the pipeline stages and of the sweeps that recover lost work."""
