"""SQL statements over tables of this library."""
