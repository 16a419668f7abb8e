"""Studies before they are sent: drafts, questions, what may be asked, preflight checks."""
