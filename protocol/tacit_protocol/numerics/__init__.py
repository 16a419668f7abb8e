"""Numerical methods: laws of quadratic forms, permutations, multiplicity, distance covariance, weights."""
