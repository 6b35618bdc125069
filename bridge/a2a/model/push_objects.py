"""The requests and answers of the operations on webhooks of tasks.

Spec: A2A 1.0 sections 3.1.7 to 3.1.10.
"""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from bridge.a2a.model.objects import Id, IdOrNone, Model, Several, TaskPushNotificationConfig

GETS_TASKS: Final = "urn:mcp-a2a:gets-tasks"
"""The field that marks a config of a 0.3 client: its webhook gets a Task (0.3 section 9.5) instead of a StreamResponse.
The bridge sets it when it reads the request, and never shows it."""


class GetTaskPushNotificationConfigRequest(Model):
    """Section 3.1.8. Versions before 1.0 may leave the id out: "" means the newest."""

    tenant: str | None = None
    task_id: Id
    id: IdOrNone


class ListTaskPushNotificationConfigsRequest(Model):
    """Section 3.1.9."""

    tenant: str | None = None
    task_id: Id
    page_size: Annotated[int, Field(ge=1, le=100)] | None = None
    page_token: str | None = None


class ListTaskPushNotificationConfigsResponse(Model):
    """Section 3.1.9."""

    configs: Several[TaskPushNotificationConfig]
    next_page_token: str | None = None


class DeleteTaskPushNotificationConfigRequest(Model):
    """Section 3.1.10."""

    tenant: str | None = None
    task_id: Id
    id: IdOrNone


class Empty(Model):
    """An empty answer: the operation succeeded."""
