"""Puts the parts together: what is to be served as values, each part made of them, and all of them as one bridge."""
