"""The machine that the bridge runs on: private files, the folders of its user, and names of files."""
