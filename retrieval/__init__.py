"""Reading: one strategy a file, pure where it can be, and the recall that puts them together."""
