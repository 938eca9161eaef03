"""Merges: what is asked (model), what it means (analysis), the rows it appends (compile), running it (execute)."""
