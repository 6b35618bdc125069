"""Agents of others: found, called, and followed to the end of a task."""
