"""From an analyzed merge to the rows it appends, as a DataFrame."""
