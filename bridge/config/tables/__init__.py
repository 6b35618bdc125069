"""Defines the keys of the file and of mapping profiles, as frozen values."""
