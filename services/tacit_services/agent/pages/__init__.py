"""The owner's pages: what is asked of us, what it would cost, and what remains."""
