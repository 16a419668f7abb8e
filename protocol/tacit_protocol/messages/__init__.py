"""The messages of a study: study, release, verdict, transcript; and the registry of problem types."""
