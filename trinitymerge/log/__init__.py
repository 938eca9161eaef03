"""The commit log: commits and snapshots as data, the files that hold them, and committing. Imports no Spark."""
