"""The requests and answers of the operations on webhooks of tasks.

Spec: A2A 1.0 sections 3.1.7 to 3.1.10.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from bridge.a2a.model.objects import Id, Model, Several, TaskPushNotificationConfig


class GetTaskPushNotificationConfigRequest(Model):
    """Section 3.1.8. Versions before 1.0 may leave the id out: "" means the newest."""

    tenant: str | None = None
    task_id: Id
    id: str


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
    id: str


class Empty(Model):
    """An answer that says nothing but that it worked."""
