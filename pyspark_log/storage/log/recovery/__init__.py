"""What the next holder of a partition's lock finishes or takes back after a kill or a power loss."""
