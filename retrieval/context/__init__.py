"""The context document: selecting its content, fitting it into a token budget, and writing it."""
