"""Data sources at the agent: CSV, Parquet and SQL, streamed in chunks and encoded in a study's domain."""
