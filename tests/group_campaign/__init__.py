"""A campaign against groups without a server: members that join, leave, are killed and stopped, in any order."""
