"""Reads of logins that several tasks share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import anyio

from bridge.concurrency import Signal
from bridge.identity.logins.kept_logins import LoginKey
from bridge.identity.pages.login_desk import LoginLooks


@dataclass(eq=False)
class Keeper:
    """A place of logins that counts its reads."""

    login: Any = "old"
    reads: int = 0

    async def find(self, _: LoginKey) -> Any:
        self.reads += 1
        return self.login


async def test_a_read_from_before_the_question_does_not_count() -> None:
    keeper, looks = Keeper(), LoginLooks(Signal())
    key = cast("LoginKey", "bob at crm")

    async def find(not_before: float) -> Any:
        return await looks.find(cast("Any", keeper), key, not_before)

    begun = anyio.current_time()
    assert await find(begun) == "old"
    assert await find(begun) == "old"
    assert keeper.reads == 1, "tasks that began to wait before a read share it"
    keeper.login = None  # another process deletes the login, which notifies nobody here
    assert await find(anyio.current_time()) is None
    assert keeper.reads == 2
