"""What looks after a store: verify, repair, transfer from and to Kafka, doctor, janitor."""
