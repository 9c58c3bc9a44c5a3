"""Runs one function of ours on a JSON request, for `pool.call`."""

import importlib
import traceback

from gpu_runner.evaluation.channel import Channel
from gpu_runner.evaluation.errors import ProtocolError

DETAIL_LIMIT = 4_000
RECEIVE_TIMEOUT_S = 30.0


def main(channel: Channel, fds: list[int]) -> None:
    message, _ = channel.receive(RECEIVE_TIMEOUT_S)
    module, _, name = message["entry"].partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
        answer = {"result": function(message["request"])}
    except Exception as error:  # noqa: BLE001 - the child's main: any failure is told, none is lost
        answer = failure(error)
    try:
        channel.send(answer)
    except ProtocolError as error:
        channel.send(failure(error))


def failure(error: BaseException) -> dict[str, str]:
    """The error in one line, and where it came from; ends of both, bounded."""
    line = "".join(traceback.format_exception_only(error)).strip()
    return {
        "error": line[-DETAIL_LIMIT:],
        "trace": "".join(traceback.format_exception(error))[-DETAIL_LIMIT:],
    }
