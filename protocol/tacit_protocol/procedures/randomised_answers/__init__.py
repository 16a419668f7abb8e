"""Dependence by randomised answers: what owners release, and what tables of answers say."""
