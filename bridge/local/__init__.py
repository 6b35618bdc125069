"""The local machine: private files, the user's folders, file locks and file names."""
