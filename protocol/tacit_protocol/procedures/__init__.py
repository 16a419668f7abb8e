"""One file per named procedure; the registry is the only place that lists them."""
