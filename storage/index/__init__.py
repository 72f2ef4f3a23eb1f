"""The search indexes of a store, and the words of the keyword retriever: all subjects keep them up to date."""
