"""The part of ASGI that the server needs: requests, responses, and its start and stop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from .refusals import Refusal

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

JSON = "application/json"


class ClientLeft(Exception):
    """The client closed the connection before its request was complete."""


@dataclass(frozen=True)
class Request:
    """A request whose body is still to be received; names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    receive: Receive

    @classmethod
    def from_scope(cls, scope: Scope, receive: Receive) -> Request:
        """Return the request of an ASGI scope."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        return cls(scope["method"], scope["path"].removeprefix(scope.get("root_path", "")), headers, receive)


@dataclass(frozen=True)
class Response:
    """A response with its whole body."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)

    async def send(self, send: Send) -> None:
        """Send the response."""
        headers = {"content-length": str(len(self.body)), **self.headers}
        lines = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": lines})
        await send({"type": "http.response.body", "body": self.body})


def json_response(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response whose body is JSON."""
    return Response(msgspec.json.encode(content), status, {"content-type": JSON, **(headers or {})})


async def read_body(request: Request, mib: float) -> bytes:
    """Return the body of a request, or raise a refusal for one that is too large or compressed."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Refusal(415, "The body is compressed. Send it without Content-Encoding.")
    parts, size, is_complete = list[bytes](), 0, False
    while not is_complete:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        parts.append(message.get("body", b""))
        size, is_complete = size + len(parts[-1]), not message.get("more_body", False)
        if size > mib * 2**20:
            raise Refusal(413, f"The body has more than {mib:g} MiB. Send fewer rows.", {"connection": "close"})
    return b"".join(parts)


async def run_lifespan(start: Callable[[], Callable[[], Awaitable[None]]], receive: Receive, send: Send) -> None:
    """Start when the server starts, and stop when it stops.

    Args:
        start: Starts the application, and returns a function that stops it.
        receive, send: The channels of ASGI.
    """
    await receive()
    stop = start()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await stop()
    await send({"type": "lifespan.shutdown.complete"})
