"""What is tried with each peer. Knows the names alone; what each means in a direction is said where it is run."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Scenario(StrEnum):
    """One thing that clients and agents do with each other."""

    CARD = "card"
    TEXT = "text"
    PLAIN = "plain"
    DATA = "data"
    FILE = "file"
    STREAM = "stream"
    ASK = "ask"
    FAIL = "fail"
    CANCEL = "cancel"
    TURNS = "turns"


class Outcome(StrEnum):
    """What came of a scenario."""

    PASS = "pass"
    FAIL = "fail"
    CANNOT = "cannot"
    """The peer has no way to do it."""
    UNTRIED = "untried"
    """No recorded run has tried it."""


class Side(StrEnum):
    """What the peer is."""

    CLIENT = "client"
    """It calls a wrapped MCP server."""
    AGENT = "agent"
    """It is called by an MCP host, through exposed tools."""


OF_SIDE: Final = {
    Side.CLIENT: tuple(Scenario),
    Side.AGENT: tuple(scenario for scenario in Scenario if scenario is not Scenario.PLAIN),
}
"""What is tried with a peer of each side. An agent of a framework reads any sentence in its own way."""
TITLES: Final = {
    Scenario.CARD: "card",
    Scenario.TEXT: "text",
    Scenario.PLAIN: "plain words",
    Scenario.DATA: "data part",
    Scenario.FILE: "file part",
    Scenario.STREAM: "stream",
    Scenario.ASK: "question",
    Scenario.FAIL: "failure",
    Scenario.CANCEL: "cancel",
    Scenario.TURNS: "two turns",
}
