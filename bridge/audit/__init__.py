"""The audit: a file of lines that record who did what. Each line holds the hash of the line before."""
