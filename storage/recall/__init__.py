"""The data of recall: full text, vectors, the forward index, and recall events."""
