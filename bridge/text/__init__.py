"""Texts and JSON as values, without a protocol. Pure."""
