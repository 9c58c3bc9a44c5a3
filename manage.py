#!/usr/bin/env python
"""Django's command line: `manage.py up` starts everything, `manage.py link` prints a sign-in link."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "foundry_web.settings")
    try:
        from django.core.exceptions import ImproperlyConfigured
        from django.core.management import execute_from_command_line
    except ImportError as error:
        raise SystemExit(
            f"{error}: this Python has no Django; run `make setup`, then .venv/bin/python manage.py"
        ) from error
    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        raise SystemExit(f"Kernel Foundry: {error}") from error


if __name__ == "__main__":
    main()
