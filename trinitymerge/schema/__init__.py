"""What a table is: columns, keys, types, constraints, properties, and how they change. Imports no Spark."""
