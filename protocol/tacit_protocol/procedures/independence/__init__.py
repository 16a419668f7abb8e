"""Tests of whether variables that a sender holds all of are independent: by blocks of units, or a table."""
