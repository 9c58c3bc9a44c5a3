"""Every address of the site; the pages themselves are in `evolution_app.urls`."""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path

import foundry_web.gauges  # noqa: F401  registers them
from evolution_app import api
from foundry_web.security import metrics

handler500 = "foundry_web.failures.server_error"

urlpatterns: list[URLPattern | URLResolver] = [
    path("api/v1/", api.api.urls),
    path("runs/<int:run_id>/events", api.run_events, name="run-events"),
    path("metrics", metrics, name="metrics"),
    path("admin/", admin.site.urls),
    path("", include("evolution_app.urls")),
]
