"""Avro: schemas, and values as Arrow columns and back."""
