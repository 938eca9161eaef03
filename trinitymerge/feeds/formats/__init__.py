"""The formats of change feeds."""
