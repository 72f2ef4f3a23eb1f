"""The stages that make a message searchable: ingest, chunk, embed, index, and the sweeps that recover lost work."""
