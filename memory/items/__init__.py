"""Items: what they match, what of them is embedded, and how they are searched."""
