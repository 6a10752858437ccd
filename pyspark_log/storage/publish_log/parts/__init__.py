"""The parts of a store in an object store, as storage/seam has them."""
