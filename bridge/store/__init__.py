"""Stores for the data that must survive a restart: rows of bytes, in memory or in one SQLite file."""
