"""`manage.py load_library`: bring the entries that the project starts with up to date; `make run` does it at each start."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from evolution_app import services
from gpu_runner.core.starting_entries import UnreadableEntry, starting_entries


class Command(BaseCommand):
    help = "Load the starting entries of the Experience Library; what people have changed stays as it is."

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            entries = starting_entries()
        except UnreadableEntry as error:
            raise CommandError(str(error)) from error
        changed = services.load_starting_entries(entries=entries)
        self.stdout.write(f"{len(entries)} starting entries, {changed} of them new or changed")
