"""Kills of a server, its clients, a publisher and Spark, again and again: `python -m tests.server_campaign.run`."""
