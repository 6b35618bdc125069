"""How A2A is written: its bindings, versions and extensions as bytes and values. Pure; shared by server and client."""
