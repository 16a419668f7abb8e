"""Numerical methods: laws of quadratic forms, multiplicity, distance covariance, noisy tables, weights."""
