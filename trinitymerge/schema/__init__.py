"""Table definitions: columns, keys, types, constraints and properties, and their evolution. Imports no Spark."""
