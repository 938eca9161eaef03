"""From a merge that is understood to the rows it appends: programs, and the steps that every one of them takes."""
