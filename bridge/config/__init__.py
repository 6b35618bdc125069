"""The configuration: files and options, read and checked before anything starts."""
