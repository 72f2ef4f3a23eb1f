"""The context document: what is selected for it, what fits its token budget, and how it is written."""
