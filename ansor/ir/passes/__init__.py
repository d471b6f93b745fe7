"""Transformations of loop nests: each takes a statement and gives one that does the same."""
