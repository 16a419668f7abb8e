"""Released databases: weighted public points that stand for private records."""
