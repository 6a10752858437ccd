"""Reads: on the driver in batches or as a stream, in tasks range by range."""
