"""The wire formats of A2A: its bindings, versions and extensions. Pure; shared by server and client."""
