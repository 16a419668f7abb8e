"""One package or module for each procedure, which ``discovery`` finds by itself."""
