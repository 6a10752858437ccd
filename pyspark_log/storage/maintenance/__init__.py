"""Maintenance of a store: verify, repair, transfer from and to Kafka, doctor, janitor."""
