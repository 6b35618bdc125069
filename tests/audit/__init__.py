"""The audit: its chain, its files, its lines, and the line that it requires before a call."""
