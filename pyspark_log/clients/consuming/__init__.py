"""What a consumer is made of: where its partitions come from, what it reads and commits, how it waits."""
