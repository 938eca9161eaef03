"""Merges that a source is enough for: events, full extracts, dimensions with intervals (H9-H12)."""
