"""Members of groups without a server: which partitions each reads, and which of them live."""
