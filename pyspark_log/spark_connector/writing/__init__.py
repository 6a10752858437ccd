"""Writes: tasks stage rows, and the driver publishes them."""
