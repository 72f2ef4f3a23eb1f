"""Embedders behind one Protocol. Building one is cheap: torch and models are loaded by `load`, not before."""
