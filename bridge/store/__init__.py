"""What must survive a restart: rows of bytes, kept in memory or in one SQLite file."""
