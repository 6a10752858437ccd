"""What a node of a cluster answers in its own way: from the image, for the controllers, or as one of many brokers."""
