"""The audit: its chain, its files, its lines, and what it demands before a call."""
