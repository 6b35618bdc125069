"""The names by which a user says how an agent is spoken to. Command lines read them, so this module imports nothing."""

from typing import Literal

DialectChoice = Literal["auto", "1.0", "0.3", "0.1", "hermes"]
"""How an agent is spoken to: as its card says, or in this version."""
