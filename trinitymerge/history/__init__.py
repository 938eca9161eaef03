"""Looking back: what a table's past versions tell, from the batches and the log alone (S41, S42)."""
