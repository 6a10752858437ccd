"""Which user a client is, what it may do, and how much: SASL, users, ACLs, quotas."""
