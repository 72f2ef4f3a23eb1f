"""Other memory systems, in a virtual environment of their own, measured on the same texts with the same model files."""
