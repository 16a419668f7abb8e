"""The tester: the untrusted service that keeps studies, takes releases and computes verdicts."""
