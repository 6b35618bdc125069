"""Definitions that were approved, and what has changed since."""
