"""Demonstrations on real data: a whole federation on this machine."""
