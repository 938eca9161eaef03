"""Reading a table without this library: as a query for another engine, or as plain files."""
