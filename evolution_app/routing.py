"""Addresses of the websockets."""

from django.urls import path

from evolution_app.consumers import RunConsumer

websocket_urlpatterns = [path("ws/runs/<int:run_id>/", RunConsumer.as_asgi())]
