"""Distance covariance of different columns of the same units, from noisy sums of either owner."""
