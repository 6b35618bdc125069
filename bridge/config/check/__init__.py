"""Checks a configuration as plain values: rules between keys, and errors of the models in the terms of the file."""
