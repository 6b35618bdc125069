"""The model of a bridge, which is imported only if the file has `[model]`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bridge.config.tables.models import ModelTable
from bridge.notices import Notify
from bridge.tools_as_agent.chooser import Chooser


@asynccontextmanager
async def model_of(table: ModelTable | None, notify: Notify) -> AsyncIterator[Chooser | None]:
    """The model of a file, with its connections; None without one. `notify` takes a notice for each question."""
    if table is None:
        yield None
        return
    from bridge.http.client import GuardedClient
    from bridge.model.choosing import ModelChooser
    from bridge.model.client import ModelClient

    async with GuardedClient(timeout=None) as http:
        yield ModelChooser(ModelClient(table, http, time.monotonic), notify)
