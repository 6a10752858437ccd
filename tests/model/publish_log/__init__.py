"""A store in an object store, docs/internals/publish-log.md: its objects, programs, observers and situations."""
