"""Protobuf: schemas, and messages as Arrow columns and back."""
