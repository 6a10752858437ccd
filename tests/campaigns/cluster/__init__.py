"""A cluster whose nodes are killed, frozen, cut off and robbed of their disks, and what must hold then."""
