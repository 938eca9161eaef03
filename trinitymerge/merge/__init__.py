"""Merges: clauses as data, the builder, what they mean, how they are compiled, and running them."""
