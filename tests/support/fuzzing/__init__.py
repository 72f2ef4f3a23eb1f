"""Odd payloads and files, made from a seed."""
