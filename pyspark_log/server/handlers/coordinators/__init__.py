"""Requests to coordinators: members of groups, committed offsets, producers and transactions."""
