"""What a server keeps between requests: fetches that wait, sessions, counts, ids."""
