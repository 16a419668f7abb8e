"""A party's own machine: configuration files, keys, checks before anything runs, and running services."""
