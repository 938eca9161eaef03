"""Reading a table without this library."""
