"""Reports that may be published, and what they state about a row."""
