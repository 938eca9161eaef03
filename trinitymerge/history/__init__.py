"""Looking back: versions of rows, changes between commits, why a row won."""
