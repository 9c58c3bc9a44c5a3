"""Accounts, sign-in links and tokens for programs."""

from django.db import transaction
from django.utils import timezone

from evolution_app import permissions
from evolution_app.models import ApiToken, AuditEvent, SignInToken, User
from evolution_app.models.accounts import Role
from evolution_app.services.errors import NotAllowed, Refused


@transaction.atomic
def ensure_local_owner() -> User:
    """The account of an embedded installation's one person, made on the first start."""
    owner = User.objects.filter(is_local_owner=True).first()
    if owner is None:
        owner = User(
            username="owner",
            role=Role.OPERATOR,
            is_local_owner=True,
            is_staff=True,
            is_superuser=True,
        )
        owner.set_unusable_password()
        owner.save()
        AuditEvent.objects.log(actor=None, verb="account.created", target=owner, after=owner.role)
    return owner


@transaction.atomic
def issue_sign_in(*, user: User, by: User | None = None) -> str:
    """A one-time token that signs `user` in when a browser POSTs it; it must never be logged."""
    if by is not None and not permissions.may_operate(by):
        raise NotAllowed("only an operator makes sign-in links for others")
    SignInToken.objects.filter(expires_at__lt=timezone.now()).delete()
    AuditEvent.objects.log(actor=by, verb="account.link", target=user)
    return SignInToken.objects.issue(user)


@transaction.atomic
def redeem_sign_in(*, token: str) -> User | None:
    """Exchange a token for the user to log in; None if it is unknown, used, or too old."""
    user = SignInToken.objects.redeem(token)
    if user is not None:
        AuditEvent.objects.log(actor=user, verb="account.signed_in", target=user)
    return user


@transaction.atomic
def create_user(*, username: str, role: Role, by: User | None, password: str | None = None) -> User:
    """Make an account; `by` None is the command line of the machine. Without a password it signs in by link only."""
    if by is not None and not permissions.may_operate(by):
        raise NotAllowed("only an operator makes accounts")
    if User.objects.filter(username=username).exists():
        raise Refused(f"there is already an account named {username}")
    user = User.objects.create_user(username=username, password=password, role=role)
    user.is_staff = user.is_superuser = role == Role.OPERATOR
    user.save(update_fields=["is_staff", "is_superuser"])
    AuditEvent.objects.log(actor=by, verb="account.created", target=user, after=role)
    return user


@transaction.atomic
def set_role(*, user: User, role: Role, by: User | None) -> None:
    """Change what an account may do; `by` None is the command line of the machine."""
    if by is not None and not permissions.may_operate(by):
        raise NotAllowed("only an operator changes roles")
    if user.is_local_owner and role != Role.OPERATOR:
        raise Refused("the local owner stays an operator")
    before, user.role = user.role, role
    user.is_staff = user.is_superuser = role == Role.OPERATOR
    user.save(update_fields=["role", "is_staff", "is_superuser"])
    AuditEvent.objects.log(actor=by, verb="account.role", target=user, before=before, after=role)


@transaction.atomic
def issue_api_token(*, user: User, name: str) -> str:
    """A bearer token for the HTTP API and the command line; shown once."""
    token = ApiToken.objects.issue(user, name)
    AuditEvent.objects.log(actor=user, verb="account.api_token", target=user, after=name)
    return token


@transaction.atomic
def revoke_api_token(*, token_id: int, by: User) -> None:
    revoked = ApiToken.objects.filter(pk=token_id, user=by, revoked_at=None).update(
        revoked_at=timezone.now()
    )
    if not revoked:
        raise Refused("no such token")
    AuditEvent.objects.log(actor=by, verb="account.api_token_revoked", target=by)
