"""The commands that maintain a store and its files, one a file: `verify`, `repair`, `compact`, `log-dirs`, ..."""
