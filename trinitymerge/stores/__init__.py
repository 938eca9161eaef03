"""Where a table's batches and log are kept: managed directories, catalog tables, Iceberg tables."""
