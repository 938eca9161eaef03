"""The interface to Spark: SQL text, sessions, settings and errors."""
