"""The public domain of a study's columns, and tables encoded in it."""
