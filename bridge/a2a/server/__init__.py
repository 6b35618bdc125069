"""Agents as they are served: applications of ASGI before the tasks."""
