"""The agent's own interface and pages, for its owner alone."""
