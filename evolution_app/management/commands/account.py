"""`manage.py account NAME --role ROLE`: make an account, or change its role or password."""

from getpass import getpass
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from evolution_app import services
from evolution_app.models import AuditEvent, User
from evolution_app.models.accounts import Role


class Command(BaseCommand):
    help = "Make an account, or change the role or the password of one."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name")
        parser.add_argument("--role", choices=Role.values, help="viewer if the account is new")
        parser.add_argument("--password", action="store_true", help="ask for a password")

    def handle(self, *args: Any, **options: Any) -> None:
        name, role = options["name"], options["role"]
        user = User.objects.filter(username=name).first()
        if user is None:
            user = services.create_user(username=name, role=Role(role or Role.VIEWER), by=None)
            self.stdout.write(f"made {name}, {user.role}")
        elif role is not None:
            services.set_role(user=user, role=Role(role), by=None)
            self.stdout.write(f"{name} is now {role}")
        if options["password"]:
            self.set_password(user)

    def set_password(self, user: User) -> None:
        password = getpass("password: ")
        if len(password) < 8:
            raise CommandError("a password has at least 8 characters; nothing was changed")
        user.set_password(password)
        user.save(update_fields=["password"])
        AuditEvent.objects.log(actor=None, verb="account.password", target=user)
