"""What the benchmarks share: the stack they measure, its texts, a look into its database, and the form of a result."""
