"""Compressed batches: codecs, and the usual frames of lz4 and zstd."""
