"""What guards the pages: signing in, and turning a service's refusal into something a person can act on."""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, cast

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme

from evolution_app.models import User
from evolution_app.services import NotAllowed, Refused

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponse]


def signed_in(view: View[P]) -> View[P]:
    """Only for people who are signed in; others are sent to sign in and come back."""
    return login_required(explained(view))


def explained(view: View[P]) -> View[P]:
    """A role that does not suffice is a 403 with the reason on the page."""

    @wraps(view)
    def answer(request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        try:
            return view(request, *args, **kwargs)
        except NotAllowed as error:
            return render(request, "403.html", {"reason": sentence(error)}, status=403)

    return cast(View[P], answer)


def person(request: HttpRequest) -> User:
    """The user behind a request that `signed_in` has let through."""
    return cast(User, request.user)


def sentence(error: Exception) -> str:
    """A service's message as a sentence of its own."""
    text = str(error)
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")


def back_to(request: HttpRequest, default: str) -> HttpResponse:
    """To where the form said it came from, if that is here."""
    target = request.POST.get("next", "")
    is_ours = url_has_allowed_host_and_scheme(target, allowed_hosts={request.get_host()})
    return redirect(target if is_ours else default)


def tell_refusal(request: HttpRequest, error: Refused) -> None:
    lines = "".join(
        f" Line {problem.line}: {problem.message}." if problem.line else f" {problem.message}."
        for problem in error.problems
    )
    messages.error(request, sentence(error) + lines, extra_tags="bad")
