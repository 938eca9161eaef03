"""A merge as it is written down: clauses, arguments, results."""
