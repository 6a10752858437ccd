"""The commands that look after a store and its files, one a file: `verify`, `repair`, `compact`, `log-dirs`, ..."""
