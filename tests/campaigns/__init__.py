"""Campaigns: processes of one system are killed, stopped and cut off at random, and what they have left is checked."""
