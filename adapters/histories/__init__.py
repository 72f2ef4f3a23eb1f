"""Histories that other programs have kept, read as records of an export: one module for each format."""
