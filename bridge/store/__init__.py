"""Stores for the data that must survive a restart: rows of bytes, in memory, in one SQLite file, or in a PostgreSQL."""
