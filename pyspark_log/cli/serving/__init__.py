"""Commands of the server: `serve`, its page, and what its clients may do."""
