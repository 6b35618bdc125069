"""The check of what came to webhooks finds each kind of fault that it is for."""

from __future__ import annotations

import pytest

from tests.shake.history import StoredEvent, View
from tests.shake.webhooks import Arrived, faults_of_webhooks

STORED = {
    "t": [
        StoredEvent("S 01", View("S 01", 0)),
        StoredEvent("message m", View("S 01", 0), is_told=False),
        StoredEvent("W 02", View("W 02", 0)),
        StoredEvent("C 03", View("C 03", 0), ends=True),
    ]
}


def come(
    mark: str, *, is_taken: bool = True, path: str = "/t", body: bytes = b"", task: str = "t"
) -> Arrived:
    return Arrived(path, task, f"id of {mark}", mark, body, is_taken)


def faults(*arrived: Arrived) -> list[str]:
    return [*faults_of_webhooks(arrived, STORED, {"t": "/t"})]


HOLDS = [come("S 01"), come("W 02", is_taken=False), come("W 02"), come("S 01"), come("C 03")]


def test_what_comes_in_order_holds_however_often_it_comes() -> None:
    assert faults(*HOLDS) == []


def test_two_tasks_of_one_message_have_the_same_webhook_and_an_order_of_their_own() -> None:
    of_both = [one._replace(task_id=task) for one in HOLDS for task in ("t", "v")]
    again = [one._replace(webhook_id=f"{one.webhook_id} of {one.task_id}") for one in of_both]
    assert [*faults_of_webhooks(again, {**STORED, "v": STORED["t"]}, {"t": "/t", "v": "/t"})] == []


@pytest.mark.parametrize(
    ("arrived", "fault"),
    [
        (HOLDS[:-1], "took 2 of 3 events, without ['C 03']"),
        (
            [come("S 01"), come("C 03"), come("W 02")],
            "took 3 of 3 events, without []: ['S 01', 'C 03', 'W 02']",
        ),
        (
            [come("S 01"), come("W 02", is_taken=False), *HOLDS[4:]],
            "got C 03 before it had taken ['id of W 02']",
        ),
        ([*HOLDS[:-1], come("C 03", is_taken=False)], "took 2 of 3 events"),
        ([*HOLDS, come("S 01", body=b"other")], "got id of S 01 twice with different bodies"),
        ([*HOLDS, come("", path="/elsewhere")], "a redirect of a webhook was followed"),
        ([*HOLDS, come("S 01", path="/u")], "something of the task t came to /u, which is not its webhook"),
        ([*HOLDS, come("S 01", task="v")], "something of the task v came to /t, which is not its webhook"),
    ],
    ids=[
        "lost end",
        "another order",
        "before it was taken",
        "never taken",
        "another body",
        "redirect",
        "nobody's",
        "another task",
    ],
)
def test_each_kind_of_fault_is_found(arrived: list[Arrived], fault: str) -> None:
    assert fault in "\n".join(faults(*arrived))
