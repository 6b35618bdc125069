"""The commands about configuration files: `init`, `check`, `show` and `schema`."""
