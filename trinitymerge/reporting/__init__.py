"""Reports of tables and merges as HTML pages, made from the log alone."""
