"""The protocol of a store in an object store, docs/publish-log.md: its objects, programs, observers and situations."""
