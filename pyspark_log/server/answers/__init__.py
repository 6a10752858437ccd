"""What answers are made of: error codes, refusals, configs as Kafka describes them."""
