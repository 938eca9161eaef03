"""All that the library asks of Spark besides reads and writes: SQL text, sessions, settings, errors."""
