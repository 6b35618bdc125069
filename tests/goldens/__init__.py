"""Golden files: whole conversations of the bridge, as bytes, in both protocols and on both of their sides.

A conversation drives a bridge in this process: as an A2A agent (`agent.py`), as a client of agents (`client.py`), as
an MCP server made of agents (`exposed.py`), as a client of tool servers (`wrapped.py`), and its paths (`routes.py`).
What passes is recorded in `recordings/`, a text file each. `test_goldens.py` compares, and
`python -m tests.goldens --write` records anew. Nothing here is checked for being right: a change of one byte shows as
a difference, which a person judges.
"""
