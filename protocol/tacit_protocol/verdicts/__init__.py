"""What procedures tell of their verdicts with: sentences, null distributions, rows and bars, cited works."""
