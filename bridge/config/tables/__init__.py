"""What each key means: the tables of the file and of mapping profiles, as frozen values."""
