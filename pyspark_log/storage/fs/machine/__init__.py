"""Facts of the machine: mounts, links, processes."""
