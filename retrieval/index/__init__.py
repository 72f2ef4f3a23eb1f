"""The in-memory index of an agent: its words, vectors and threads, and the cache of recently used indexes."""
