"""`manage.py link`: another one-time sign-in link."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from evolution_app.management.commands.up import serving_port
from evolution_app.models import User
from evolution_app.services import ensure_local_owner
from evolution_app.sign_in import sign_in_link


class Command(BaseCommand):
    help = "Print a link that signs a person in once: the local owner, or another account."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--user", help="the account's name; left out, the local owner")

    def handle(self, *args: Any, **options: Any) -> None:
        name = options["user"]
        if name is None and not settings.EMBEDDED:
            raise CommandError("name the account: manage.py link --user NAME")
        user = ensure_local_owner() if name is None else User.objects.filter(username=name).first()
        if user is None:
            raise CommandError(
                f"there is no account named {name}; make one: manage.py account {name}"
            )
        self.stdout.write(sign_in_link(user, serving_port() or settings.ENVIRONMENT.port))
