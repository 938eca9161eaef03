"""File systems: what the commit log and the listing of batches need of storage. Imports no Spark."""
