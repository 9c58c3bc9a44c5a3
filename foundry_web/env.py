"""What the environment says, read once, typed, and refused at start-up if wrong."""

import os
import secrets
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import environ  # type: ignore[import-untyped]
from django.core.exceptions import ImproperlyConfigured

PROJECT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, kw_only=True)
class Environment:
    var: Path  # the database, the secret key and logs of an embedded installation
    database_url: str | None  # None: SQLite under `var`
    redis_url: str | None  # None: hints travel through the database
    host: str
    port: int
    allowed_hosts: tuple[str, ...]  # besides loopback; given only where others may connect
    https: bool  # a proxy in front speaks TLS: secure cookies and HSTS
    debug: bool

    @property
    def is_embedded(self) -> bool:
        """One person on one machine: signed in by a printed link, and reachable from here only."""
        return not self.allowed_hosts


def read_environment(environment: dict[str, str] | None = None) -> Environment:
    """Read `environment` (default: that of the process); raises ImproperlyConfigured with what to write instead."""
    values = dict(os.environ if environment is None else environment)
    hosts = tuple(
        host.strip() for host in values.get("FOUNDRY_HOSTS", "").split(",") if host.strip()
    )
    host = values.get("HOST") or "127.0.0.1"
    if not hosts and host not in ("127.0.0.1", "localhost", "::1"):
        raise ImproperlyConfigured(
            f"HOST={host} would let others connect: set FOUNDRY_HOSTS to the names they use, and accounts apply"
        )
    return Environment(
        var=Path(values.get("FOUNDRY_VAR") or PROJECT / "var").resolve(),
        database_url=_url(values, "DATABASE_URL", ("postgres", "postgresql", "sqlite")),
        redis_url=_url(values, "REDIS_URL", ("redis", "rediss", "unix")),
        host=host,
        port=_port(values.get("PORT") or "8000"),
        allowed_hosts=hosts,
        https=_flag(values, "FOUNDRY_HTTPS"),
        debug=_flag(values, "FOUNDRY_DEBUG"),
    )


def database_settings(environment: Environment) -> dict[str, Any]:
    """Django's entry for the default database.

    SQLite: write-ahead log, and transactions that take the write lock when they begin, so that none fails half way
    because another process wrote meanwhile.
    """
    if environment.database_url is None:
        settings: dict[str, Any] = {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": str(environment.var / "foundry.sqlite3"),
        }
    else:
        settings = environ.Env.db_url_config(environment.database_url)
    if settings["ENGINE"].endswith("sqlite3"):
        settings["OPTIONS"] = {
            "timeout": 30,
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        }
    else:
        settings.setdefault("CONN_HEALTH_CHECKS", True)
    return settings


def secret_key(var: Path) -> str:
    """The installation's key, made on first use and readable by its owner only."""
    path = var / "secret_key"
    try:
        if not path.exists():
            _make_key(path)
        key = path.read_text().strip()
    except OSError as error:
        raise ImproperlyConfigured(
            f"cannot keep anything in {var}: {error.strerror}. Free some space there, let this user write to it, "
            "or set FOUNDRY_VAR to another folder"
        ) from error
    if len(key) < 50:
        raise ImproperlyConfigured(f"{path} holds no key; delete it, and a new one is made")
    return key


def _make_key(path: Path) -> None:
    """Whole or not at all: several processes may start at once, and the first one's key counts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, draft = tempfile.mkstemp(dir=path.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(64))
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        os.unlink(draft)


def _url(values: dict[str, str], name: str, schemes: tuple[str, ...]) -> str | None:
    url = values.get(name) or None
    if url is not None and urlsplit(url).scheme not in schemes:
        raise ImproperlyConfigured(
            f"{name} must begin with {' or '.join(s + '://' for s in schemes)}"
        )
    return url


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise ImproperlyConfigured(f"PORT={text} is no port: give a number from 1 to 65535")
    return int(text)


def _flag(values: dict[str, str], name: str) -> bool:
    text = values.get(name, "").lower()
    if text not in ("", "0", "1", "false", "true"):
        raise ImproperlyConfigured(f"{name}={text}: write 1 or 0")
    return text in ("1", "true")
