"""Storage: SQLite files, their schema, their indexes, and one repository per aggregate."""
