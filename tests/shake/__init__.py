"""Replicas of a shared store that are killed, stopped and cut off, and a check that nothing acknowledged is lost."""
