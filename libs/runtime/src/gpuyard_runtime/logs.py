"""Logs: one JSON object a line on standard error, with the event, correlation and trace ids of what is being done."""

import logging
import sys
from typing import Any

import structlog

Log = Any
"""structlog's bound logger; its methods take the event's name and key-value pairs."""


def configure(service: str, level: str) -> None:
    """Set up logging for the process. Libraries that log through `logging` come out in the same form, from warnings up."""
    number = logging.getLevelNamesMapping()[level.upper()]
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service=service)
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=str),
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=max(number, logging.WARNING), force=True)


def log_of(name: str) -> Log:
    """A logger; `name` is the part of the program that speaks."""
    return structlog.get_logger(part=name)


def trace_id_of(traceparent: str | None) -> str | None:
    """The trace id of a trace context, for logs."""
    return None if traceparent is None else traceparent[3:35]
