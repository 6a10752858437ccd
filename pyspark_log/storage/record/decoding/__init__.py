"""Record batches as Arrow columns, formats 0 to 2."""
