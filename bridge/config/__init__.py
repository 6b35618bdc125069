"""Reads and checks the configuration (files and options) before anything starts."""
