"""Merges: clauses as data, the builder, the analysis, the compiler and the writer."""
