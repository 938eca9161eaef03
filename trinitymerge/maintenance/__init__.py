"""Operations that keep a table small, fast and healthy."""
