"""Addresses of the websockets."""

from typing import Any

from django.urls import path

from evolution_app.consumers import RunConsumer

run_consumer: Any = RunConsumer.as_asgi()
websocket_urlpatterns: list[Any] = [path("ws/runs/<int:run_id>/", run_consumer)]
