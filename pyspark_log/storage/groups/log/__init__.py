"""The records of `__consumer_offsets`, byte for byte as Kafka's, and a view that follows them."""
