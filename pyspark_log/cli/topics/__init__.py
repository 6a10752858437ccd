"""The commands about topics, one a file: `topics`, `configs`, `offsets`, `du`, `top`."""
