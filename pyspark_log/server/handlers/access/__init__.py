"""Who a client is, what it may do, and how much of it: SASL, users, ACLs, quotas."""
