"""A server beside others over one store."""
