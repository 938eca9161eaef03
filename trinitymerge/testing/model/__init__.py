"""The reference interpreter: the rules of docs/semantics.md in plain Python."""
