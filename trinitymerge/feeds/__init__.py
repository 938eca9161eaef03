"""Merges generated from a source alone: change events, snapshots, intervals, streams."""
