"""Reading a partition's log: ranges, look-ups by time, what was committed."""
