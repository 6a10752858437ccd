"""The commands about records, one a file: `consume`, `tail`, `dump`; and how records are shown."""
