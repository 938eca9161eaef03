"""What a stored row means: keys, watermarks, tombstones, ties."""
