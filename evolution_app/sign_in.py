"""The link by which a person signs in without a password.

The token is in the fragment, which browsers do not send; the page at /welcome posts it. So it is in no log of any server.
"""

from evolution_app import services
from evolution_app.models import User


def sign_in_link(user: User, port: int, host: str = "127.0.0.1") -> str:
    return f"http://{host}:{port}/welcome#{services.issue_sign_in(user=user)}"
