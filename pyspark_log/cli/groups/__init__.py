"""The commands about consumer groups: `groups` with its subcommands."""
