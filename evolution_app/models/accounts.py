"""People, their roles, and the tokens by which they sign in."""

import hashlib
import secrets
from datetime import timedelta
from typing import Self

from django.contrib.auth.models import AbstractUser
from django.db import models
from django.db.models import Q
from django.utils import timezone

SIGN_IN_TOKEN_LIFETIME = timedelta(hours=12)


class Role(models.TextChoices):
    """What one may do: the table in section 1 of the design. Each role may do all that the one before may."""

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    EXPERT = "expert"
    OPERATOR = "operator"


class Theme(models.TextChoices):
    AUTO = "auto"
    LIGHT = "light"
    DARK = "dark"


class User(AbstractUser):
    """An account. `is_local_owner` marks the one person of an embedded installation, who signs in by link."""

    Role = Role
    Theme = Theme

    role = models.CharField(max_length=16, choices=Role, default=Role.VIEWER)
    is_local_owner = models.BooleanField(default=False)
    theme = models.CharField(max_length=8, choices=Theme, default=Theme.AUTO)

    class Meta:
        constraints = [
            models.CheckConstraint(name="user_role_known", condition=Q(role__in=Role.values)),
            models.UniqueConstraint(
                name="one_local_owner", fields=["is_local_owner"], condition=Q(is_local_owner=True)
            ),
        ]

    @property
    def is_submitter(self) -> bool:
        return self.role in (Role.SUBMITTER, Role.EXPERT, Role.OPERATOR)

    @property
    def is_expert(self) -> bool:
        return self.role in (Role.EXPERT, Role.OPERATOR)

    @property
    def is_operator(self) -> bool:
        return self.role == Role.OPERATOR

    @property
    def display_name(self) -> str:
        return self.get_full_name() or self.username


def hashed(token: str) -> str:
    """How tokens are stored. They carry 256 random bits, so that a plain digest is enough."""
    return hashlib.sha256(token.encode()).hexdigest()


class SignInTokenQuerySet(models.QuerySet["SignInToken"]):
    def issue(self, user: User) -> str:
        """A new token for one sign-in; it is not kept in clear and cannot be shown again."""
        token = secrets.token_urlsafe(32)
        self.create(
            user=user, digest=hashed(token), expires_at=timezone.now() + SIGN_IN_TOKEN_LIFETIME
        )
        return token

    def redeem(self, token: str) -> User | None:
        """The user whom an unused, unexpired token signs in; it works once."""
        usable = self.filter(digest=hashed(token), used_at=None, expires_at__gt=timezone.now())
        if not usable.update(used_at=timezone.now()):
            return None
        user = self.select_related("user").get(digest=hashed(token)).user
        return user if user.is_active else None


class SignInToken(models.Model):
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="sign_in_tokens")
    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)

    objects = SignInTokenQuerySet.as_manager()


class ApiTokenQuerySet(models.QuerySet["ApiToken"]):
    def usable(self) -> Self:
        return self.filter(revoked_at=None).filter(
            Q(expires_at=None) | Q(expires_at__gt=timezone.now())
        )

    def issue(self, user: User, name: str, lifetime: timedelta | None = None) -> str:
        """A bearer token for the HTTP API, shown once."""
        token = secrets.token_urlsafe(32)
        expires_at = timezone.now() + lifetime if lifetime else None
        self.create(user=user, name=name, digest=hashed(token), expires_at=expires_at)
        return token

    def user_of(self, token: str) -> User | None:
        found = self.usable().select_related("user").filter(digest=hashed(token)).first()
        if found is None or not found.user.is_active:
            return None
        self.filter(pk=found.pk).update(last_used_at=timezone.now())
        return found.user


class ApiToken(models.Model):
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=80)
    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    objects = ApiTokenQuerySet.as_manager()
