"""The limit on waiting messages whose agents named no task."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.agents_as_tools.sending import Sending, UnnamedMessages
from bridge.errors import PeerError

pytestmark = pytest.mark.proves("map-slow-agent")


def sending() -> Sending:
    """One that is not sent."""
    client: Any = None
    return Sending(client, lambda _: None, None)


async def test_the_number_of_unnamed_messages_is_limited_and_the_oldest_goes_first() -> None:
    unnamed = UnnamedMessages(3)
    ids = [unnamed.keep(sending()) for _ in range(4)]
    assert all(UnnamedMessages.is_id(one) for one in ids)
    assert len(set(ids)) == len(ids)
    with pytest.raises(PeerError, match="no longer known"):
        unnamed.find(ids[0])
    assert unnamed.find(ids[1]) is not unnamed.find(ids[-1])
