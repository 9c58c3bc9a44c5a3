"""The Django project: settings, ASGI entry, the channel layer of the embedded default, security headers, the supervisor."""
