"""The tester's pages: studies, who has sent, progress, and verdicts."""
