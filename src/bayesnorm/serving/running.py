"""Run a server until it is asked to stop."""

from __future__ import annotations

import logging
import socket
from typing import Any

import uvicorn

from ..errors import BayesNormError
from .application import Settings, application
from .log import write_log
from .models import Model

# Seconds that open requests get to finish after the server was asked to stop.
GRACE_SECONDS = 10


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that accepts connections to an address, or raise an error that says why it cannot.

    Args:
        host: The name or number of the address.
        port: The port; 0 for a free one.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=4096)
        # Without it, the system delays the body of a short reply by 40 ms. Accepted connections inherit it.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except (OSError, OverflowError, UnicodeError) as error:
        raise BayesNormError(
            f"The server cannot use port {port} of {host} ({error}). Use another --port or --host."
        ) from None
    return listener


def serve(model: Model, listener: socket.socket, settings: Settings) -> None:
    """Serve a model until Ctrl-C or SIGTERM; open requests are still answered.

    Args:
        model: The model.
        listener: The socket of the server.
        settings: The limits.
    """
    log = logging.getLogger("uvicorn")
    handler = _JsonHandler()
    log.addHandler(handler)
    try:
        uvicorn.Server(configuration(model, settings)).run(sockets=[listener])
    finally:
        log.removeHandler(handler)
        listener.close()


def configuration(model: Model, settings: Settings) -> uvicorn.Config:
    """Return the configuration of uvicorn for a model."""
    return uvicorn.Config(
        application(model, settings),
        loop="asyncio",
        http="h11",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )


class _JsonHandler(logging.Handler):
    """Writes the warnings of uvicorn as lines of JSON."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: Any) -> None:
        write_log({"level": record.levelname.lower(), "message": record.getMessage()})
