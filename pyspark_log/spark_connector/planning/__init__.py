"""What a query reads: its topics, their offsets, and the ranges of offsets that its tasks read."""
