"""Tests and estimates from private means, shared by the two-sample tests and the released database."""
