"""The command ``trinitymerge ingest``: from files or Kafka into tables, continuously or once."""
