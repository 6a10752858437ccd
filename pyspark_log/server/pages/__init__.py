"""What a server shows by HTTP, beside Kafka's protocol: metrics, health, the page of the store."""
