"""Signing in and out, by password or by a one-time link, and the page of one's own account."""

from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import ensure_csrf_cookie
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from evolution_app import services
from evolution_app.forms import SignInForm
from evolution_app.models.accounts import Theme
from evolution_app.services import Refused
from evolution_app.views.access import back_to, person, sentence, signed_in
from evolution_app.views.shell import theme_of

RIGHTS = {
    "viewer": "see what is public and what is shared with you",
    "submitter": "submit tasks, steer and share your own, nominate from your own candidates",
    "expert": "also steer what is shared with experts, and review the library",
    "operator": "also see everything, and look after accounts, models and runners",
}
_YEAR_S = 365 * 24 * 3600


class SignIn(LoginView):
    """Name and password, for installations with accounts."""

    template_name = "accounts/login.html"
    redirect_authenticated_user = True


class SignOut(LogoutView):
    pass


@never_cache
@ensure_csrf_cookie
@sensitive_post_parameters("token")
@require_http_methods(["GET", "POST"])
def sign_in_by_link(request: HttpRequest) -> HttpResponse:
    """Exchange a one-time token for a session.

    The printed link carries the token behind `#`, which no browser sends and no log records; the page's script
    moves it into the form and POSTs it. Without a script the token is pasted.
    """
    form = SignInForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        user = services.redeem_sign_in(token=form.cleaned_data["token"].strip())
        if user is not None:
            login(request, user, backend="django.contrib.auth.backends.ModelBackend")
            return back_to(request, "runs")
        form.add_error(
            "token",
            "This link was used already or is too old. On this machine .venv/bin/python manage.py link prints another one.",
        )
    status = 422 if form.errors else 200
    return render(request, "accounts/sign_in.html", {"form": form}, status=status)


@signed_in
@require_GET
def account(request: HttpRequest) -> HttpResponse:
    user = person(request)
    context = {
        "rights": [(role, right, role == user.role) for role, right in RIGHTS.items()],
        "themes": Theme.values,
        "tokens": user.api_tokens.filter(revoked_at=None).order_by("-id"),
        "new_token": request.session.pop("new_api_token", ""),
        "section": "account",
    }
    return render(request, "accounts/account.html", context)


@require_POST
def set_theme(request: HttpRequest) -> HttpResponse:
    """Keep the choice with the browser, and with the account of whoever is signed in."""
    order = [str(theme) for theme in Theme.values]
    theme = request.POST.get("theme", "")
    if theme == "next":
        theme = order[(order.index(theme_of(request)) + 1) % len(order)]
    response = back_to(request, "runs")
    if theme not in order:
        return response
    response.set_cookie("theme", theme, max_age=_YEAR_S, samesite="Lax")
    if request.user.is_authenticated:
        user = person(request)
        user.theme = theme
        user.save(update_fields=["theme"])
    return response


@signed_in
@require_POST
def make_api_token(request: HttpRequest) -> HttpResponse:
    """A bearer token for the command line; shown once, on the page that follows."""
    name = request.POST.get("name", "").strip()[:80] or "unnamed"
    request.session["new_api_token"] = services.issue_api_token(user=person(request), name=name)
    return redirect("account")


@signed_in
@require_POST
def revoke_api_token(request: HttpRequest, token_id: int) -> HttpResponse:
    try:
        services.revoke_api_token(token_id=token_id, by=person(request))
    except Refused as error:
        messages.error(request, sentence(error), "bad")
    return redirect("account")
