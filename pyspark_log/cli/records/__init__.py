"""The commands about records, one a file: `produce`, `consume`, `tail`, `dump`, `perf`; and how records are shown."""
