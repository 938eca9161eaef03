"""Planning, running, checking and committing a merge."""
