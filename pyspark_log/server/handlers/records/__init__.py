"""Records in and out: Produce, Fetch, ListOffsets, leader epochs, and where partitions are on disks."""
