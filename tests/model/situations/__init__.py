"""What is explored: a few processes each, which do a few things."""
