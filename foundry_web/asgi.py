"""What daphne serves: pages over HTTP, runs over websockets."""

# Django must be set up before anything that imports models.
# ruff: noqa: E402

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "foundry_web.settings")

from django.core.asgi import get_asgi_application

pages = get_asgi_application()

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter

from evolution_app.routing import websocket_urlpatterns
from foundry_web import logs
from foundry_web.security import BearerToken, SameOrigin

logs.configure()

sockets = SameOrigin(AuthMiddlewareStack(BearerToken(URLRouter(websocket_urlpatterns))))
application = ProtocolTypeRouter({"http": pages, "websocket": sockets})
