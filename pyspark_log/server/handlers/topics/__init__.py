"""What there is: topics, their configs, and the servers that have them."""
