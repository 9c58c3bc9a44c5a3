"""Log lines: structured, one per event, on stderr; no token or key in any of them."""

import logging
import re
import sys

import structlog

_SECRET = re.compile(
    r"(?i)((?:token|key|authorization|password)[\"']?\s*[=:]\s*[\"']?(?:bearer\s+)?)[\w.~+/-]{12,}"
)


class WithoutTokens(logging.Filter):
    """Blanks what looks like a secret, in case a library logs a whole request."""

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        cleaned = _SECRET.sub(r"\1...", message)
        if cleaned != message:
            record.msg, record.args = cleaned, None
        return True


def formatter() -> logging.Formatter:
    """People read the log of an embedded installation; programs read it where stderr is no terminal."""
    renderer: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer()
        if sys.stderr.isatty()
        else structlog.processors.KeyValueRenderer()
    )
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
        ],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            renderer,
        ],
    )


def configure() -> None:
    """Make `structlog.get_logger` write through the standard library's logging."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
