"""JSON: JSON Schema, and values as Arrow columns and back."""
