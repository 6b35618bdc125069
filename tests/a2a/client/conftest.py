"""Fixtures of the tests of the client of agents."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    """An HTTP client without a guard."""
    async with httpx2.AsyncClient() as http:
        yield http
