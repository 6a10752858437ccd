"""A model of the protocol, checked in every state that it can reach; see docs/internals/model.md."""
