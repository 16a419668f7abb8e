"""Permutation tests of several columns: statistics, their sensitivities, and the noise of a decision."""
