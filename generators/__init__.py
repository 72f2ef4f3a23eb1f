"""Writes the pages and the SQL that are made from the code: `python -m generators`. Not installed with Reverie."""
