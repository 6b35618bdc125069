"""What an operator approved of servers and agents: their definitions in a lock file, and what has changed since.

`definitions.py` says what counts of a definition, `differences.py` compares two of them, and `lock.py` keeps them in a
file. `guard.py` holds back what is not approved while a bridge runs. `oddities.py` finds what a person who reads a
definition cannot see, or would not expect. Without a lock and without `pinned` in the configuration, nothing here runs.
"""
