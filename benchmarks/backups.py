"""`python -m benchmarks backups`: backups under load, each restored and compared with what had been acknowledged."""
