"""The audit: a file of lines that tell who did what, each chained to the one before by its hash."""
