"""Principals, and the verifiers that recognise them."""
