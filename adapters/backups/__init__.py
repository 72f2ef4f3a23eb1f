"""Backups in a folder: encrypted or not, incremental by blocks, each complete or not there at all."""
