"""What the services share: HTTP boundary, database, settings, logs."""
