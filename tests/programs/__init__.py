"""Random programs over the public calls of a store, in several processes, against a model in memory."""
