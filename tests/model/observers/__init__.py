"""What nobody may ever see: observers that look at every state, and remember."""
