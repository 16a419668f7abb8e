"""Calibration, accounting and noise. Knows no procedure."""
