"""What must never be seen: observers that check every state, and remember."""
