"""`pylog produce`: lines, with keys and values of schemas, become records; and `pylog perf`, which makes its own."""
