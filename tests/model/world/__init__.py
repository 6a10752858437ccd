"""What processes share: files as a power loss treats them, locks, and what is left to chance."""
