"""Tests on noisy counts: noisy tables, homogeneity and independence of categories."""
