"""What servers of a store decide: batches of their clients, documents, which of them are there."""
