"""What a merge means, found with Spark's analyzer before any job runs."""
