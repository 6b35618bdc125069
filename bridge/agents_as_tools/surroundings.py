"""What everything that a face does for a host shares."""

from __future__ import annotations

from dataclasses import dataclass

import anyio.abc

from bridge.agents_as_tools.handles import Handles
from bridge.agents_as_tools.options import FaceOptions
from bridge.agents_as_tools.sending import UnnamedMessages
from bridge.agents_as_tools.tools import SkillKey
from bridge.concurrency import ToolLimiters


@dataclass(frozen=True, slots=True)
class FaceRuntime:
    """Made once a face is entered, and anew with other options; a call keeps those that it began with."""

    handles: Handles
    options: FaceOptions
    background: anyio.abc.TaskGroup
    """Where messages go out, as long as the face is served."""
    unnamed: UnnamedMessages
    turns: ToolLimiters[SkillKey]
