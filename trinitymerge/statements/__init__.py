"""SQL text as calls of tables: read without Spark into frozen statements, then run."""
