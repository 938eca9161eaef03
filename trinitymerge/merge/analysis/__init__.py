"""The meaning of a merge, found with Spark's analyzer before any job runs."""
