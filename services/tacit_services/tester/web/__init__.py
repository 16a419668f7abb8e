"""The tester's interface and pages."""
