"""The answer when we fail: a page, or JSON where a program asked; a full disk is called by its name."""

import sys

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import requires_csrf_token
from django.views.defaults import server_error as plain_page

from foundry_web.database import is_out_of_room

FULL = (
    "The disk is full, so this was not kept. Free some space for the data folder and send it again; "
    "what was saved before is safe."
)
FAILED = "Something failed on our side; the last lines of the web process's output name the cause."


@requires_csrf_token
def server_error(request: HttpRequest) -> HttpResponse:
    """Django's handler for an exception, which is still being handled when this is called."""
    error = sys.exc_info()[1]
    is_full = error is not None and is_out_of_room(error)
    status = 507 if is_full else 500
    if request.path.startswith("/api/"):
        return JsonResponse({"detail": FULL if is_full else FAILED}, status=status)
    page: HttpResponse = plain_page(request, "507.html" if is_full else "500.html")
    page.status_code = status
    return page
