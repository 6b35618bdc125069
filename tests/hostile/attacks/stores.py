"""What happens to the store underneath: a full disk, and a file that is taken away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from tests.hostile.attacks.attack import Attack, Scene, Service, require, state_of
from tests.hostile.taking_away import cut_to_nothing, replaced
from tests.support.running import call_part, message

_DISK_BYTES: Final = 4 << 20
_ROOMS: Final = (0, 65_536, 262_144, 1_048_576)
_CALLS: Final = 20
_LOOK_SECONDS: Final = 0.05


async def full_disk(scene: Scene) -> str:
    """A disk that fills up again and again, and has room again."""
    assert scene.disk is not None
    agent, came = scene.agent(), Counter[str]()
    for room in _ROOMS:
        scene.disk.fill(room)
        for number in range(_CALLS):
            part = call_part("big", bytes=40_000) if number % 2 else call_part("echo", text="x")
            came[state_of(await agent.post("SendMessage", message(part)))] += 1
        scene.disk.free()
        while (await scene.readiness()).status_code != 200:
            await anyio.sleep(_LOOK_SECONDS)
    require(any(end.startswith("503") for end in came), came)
    return ", ".join(f"{count} {end}" for end, count in came.most_common())


async def taken_away(scene: Scene, do: Callable[[Path], None]) -> str:
    """The file of the store is not what it was, under a bridge that goes on."""
    agent, came = scene.agent(), Counter[str]()
    do(scene.store)
    for _ in range(_CALLS):
        came[state_of(await agent.post("SendMessage", message(call_part("echo", text="x"))))] += 1
    require(not came["COMPLETED"], f"{came['COMPLETED']} of {_CALLS} calls were acknowledged")
    return ", ".join(f"{count} {end}" for end, count in came.most_common())


ATTACKS: Final = (
    Attack("a full disk", full_disk, Service.PAUSED, disk_bytes=_DISK_BYTES),
    Attack("the store deleted", partial(taken_away, do=Path.unlink), Service.ENDED),
    Attack("the store cut", partial(taken_away, do=cut_to_nothing), Service.ENDED),
    Attack("the store replaced", partial(taken_away, do=replaced), Service.ENDED),
)
