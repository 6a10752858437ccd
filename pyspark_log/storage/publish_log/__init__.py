"""A store whose truth is a log of numbered decisions in an object store, each made by one put-if-absent."""
