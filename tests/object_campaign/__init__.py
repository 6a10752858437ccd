"""Many processes on a store in an object store, which are killed and stopped, with the server of the objects."""
