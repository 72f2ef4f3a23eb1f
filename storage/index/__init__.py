"""The search indexes of a store, and the words of the keyword retriever: every subject keeps them true."""
