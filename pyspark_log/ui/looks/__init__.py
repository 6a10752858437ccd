"""Looks into a topic: records of a page, a search, a download, and how their values are shown."""
