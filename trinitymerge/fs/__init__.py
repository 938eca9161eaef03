"""File systems: exclusive creation, listings and deletes for the log and the batches. Imports no Spark."""
