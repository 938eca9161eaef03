"""The meaning of stored rows: keys, watermarks, tombstones and ties."""
