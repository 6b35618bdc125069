"""Checks a configuration as plain values: rules between keys, and the models' errors in the words of the file."""
