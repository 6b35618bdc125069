"""Texts and JSON values, independent of any protocol. Pure."""
