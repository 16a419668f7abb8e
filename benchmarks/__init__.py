"""Benchmarks: every claim of power or speed in the docs is made by a command here."""
