"""Understands a sentence: which skill it means, and with which arguments. Pure."""
