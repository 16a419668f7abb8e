"""Null distributions, numerically. Knows no message."""
