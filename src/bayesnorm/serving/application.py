"""The application: addresses, limits, the token, errors as JSON, and a line of log for each request."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from .. import errors
from .asgi import JSON, ClientLeft, Receive, Request, Response, Scope, Send, json_response, read_body, run_lifespan
from .batching import Batcher
from .inputs import model_batch, require_rows
from .log import write_log
from .metrics import Metrics
from .models import Batch, Model
from .openapi import description, page
from .refusals import Refusal
from .rows import decode_csv, decode_rows, encode_csv, encode_rows
from .tensors import HEADER_LENGTH, decode_request, encode_reply

Handler = Callable[[Request], Awaitable[Response]]
Decode = Callable[[bytes], tuple[Batch, Callable[[Batch], Response]]]

# Bodies of at least this many bytes are decoded one after the other, and other requests are answered between them.
LARGE_BODY = 2**18


@dataclass(frozen=True)
class Settings:
    """The limits of a server.

    Args:
        queue: Largest number of requests that wait or are being predicted; further ones get status 429.
        seconds: Seconds after which a request fails.
        mib: Largest body of a request, in MiB.
        rows: Largest number of rows of a request, and about how many are predicted together.
        token: The token that clients must send as `Authorization: Bearer ...`; None for none.
        log: Whether to write a line of JSON for each request to standard error.
    """

    queue: int = 256
    seconds: float = 30.0
    mib: float = 16.0
    rows: int = 2000
    token: str | None = None
    log: bool = True


@dataclass(frozen=True)
class Route:
    """What happens at an address.

    Args:
        handler: Returns the response.
        label: The address in metrics and logs.
        method: The method that it accepts; HEAD counts as GET.
        is_open: Whether it needs no token.
    """

    handler: Handler
    label: str
    method: str = "GET"
    is_open: bool = False


class Application:
    """The handlers of one model, as an application of ASGI.

    Args:
        model: The model.
        settings: The limits.
    """

    def __init__(self, model: Model, settings: Settings) -> None:
        self.model, self.settings = model, settings
        self.in_flight, self.ready = 0, False
        self.metrics = Metrics(lambda: self.in_flight, settings.queue)
        self.batcher = Batcher(model, self.metrics, settings.rows)
        self._large_bodies = asyncio.Lock()
        self._refused = Route(self._no_address, "other")
        self._routes = {
            "/v2/health/live": Route(self._live, "/v2/health/live", is_open=True),
            "/v2/health/ready": Route(self._readiness, "/v2/health/ready", is_open=True),
            "/v2": Route(self._server, "/v2"),
            "/metrics": Route(self._metrics, "/metrics"),
            "/openapi.json": Route(self._openapi, "/openapi.json"),
            "/docs": Route(self._docs, "/docs"),
        }
        for version in ("", "/versions/1"):
            path, label = f"/v2/models/{model.name}{version}", f"/v2/models/{{model}}{version}"
            self._routes[path] = Route(self._metadata, label)
            self._routes[f"{path}/ready"] = Route(self._readiness, f"{label}/ready")
            self._routes[f"{path}/infer"] = Route(self._infer, f"{label}/infer", "POST")
        if model.is_table:
            self._routes["/predict"] = Route(self._predict, "/predict", "POST")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or start and stop with the server."""
        if scope["type"] == "http":
            request = Request.from_scope(scope, receive)
            await (await self._handle(request)).send(send)
        elif scope["type"] == "lifespan":
            await run_lifespan(self._start, receive, send)

    def _start(self) -> Callable[[], Awaitable[None]]:
        """Start to predict; return a function that stops it."""
        worker = asyncio.create_task(self.batcher.run())
        self.ready = True

        async def stop() -> None:
            self.ready = False
            worker.cancel()
            await asyncio.wait([worker])

        return stop

    async def _handle(self, request: Request) -> Response:
        """Return the response to a request, with the token checked, errors as JSON, counted and logged."""
        started, failure = time.perf_counter(), ""
        route = self._routes.get(request.path, self._refused)
        try:
            if not route.is_open:
                self._require_token(request)
            method = "GET" if request.method == "HEAD" else request.method
            if route is not self._refused and method != route.method:
                raise Refusal(
                    405, f"{errors.quoted(request.path)} accepts {route.method} only.", {"allow": route.method}
                )
            response = await route.handler(request)
        except Refusal as refusal:
            failure = str(refusal)
            response = _problem(refusal.status, failure, dict(refusal.headers or {}))
        except errors.BayesNormError as error:
            failure = str(error)
            response = _problem(400, failure)
        except ClientLeft:
            failure = "The client closed the connection."
            response = _problem(400, failure)
        except Exception:
            failure = traceback.format_exc()
            response = _problem(500, "The server failed. Its log says why.")
        seconds = time.perf_counter() - started
        self.metrics.request(route.label, response.status, seconds if route.method == "POST" else None)
        if self.settings.log and (route.method == "POST" or failure):
            line = {"path": route.label, "status": response.status, "milliseconds": round(1e3 * seconds, 2)}
            write_log({**line, "error": failure} if failure else line)
        return response

    def _require_token(self, request: Request) -> None:
        """Raise a refusal unless the request has the token; the time that this takes does not depend on it."""
        if self.settings.token is None:
            return
        expected, received = (
            hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
            for text in (f"Bearer {self.settings.token}", request.headers.get("authorization", ""))
        )
        if not hmac.compare_digest(expected, received):
            raise Refusal(401, "Send the header Authorization: Bearer TOKEN.", {"www-authenticate": "Bearer"})

    async def _live(self, _: Request) -> Response:
        return json_response({"live": True})

    async def _readiness(self, _: Request) -> Response:
        return json_response({"ready": self.ready}, 200 if self.ready else 503)

    async def _server(self, _: Request) -> Response:
        return json_response({"name": "bayesnorm", "version": _version(), "extensions": ["binary_tensor_data"]})

    async def _metadata(self, _: Request) -> Response:
        tensors = {
            side: [{"name": t.name, "datatype": t.datatype, "shape": [-1, *t.shape]} for t in getattr(self.model, side)]
            for side in ("inputs", "outputs")
        }
        return json_response({"name": self.model.name, "versions": ["1"], "platform": "bayesnorm", **tensors})

    async def _metrics(self, _: Request) -> Response:
        return Response(self.metrics.text().encode(), headers={"content-type": "text/plain; version=0.0.4"})

    async def _openapi(self, _: Request) -> Response:
        return json_response(description(self.model, _version()))

    async def _docs(self, _: Request) -> Response:
        html = page(self.model, _version()).encode()
        return Response(html, headers={"content-type": "text/html; charset=utf-8"})

    async def _infer(self, request: Request) -> Response:
        """Answer a request of the protocol, as JSON or binary."""

        def decode(body: bytes) -> tuple[Batch, Callable[[Batch], Response]]:
            infer, arrays = decode_request(body, request.headers.get(HEADER_LENGTH.lower()))

            def reply(outputs: Batch) -> Response:
                content, headers = encode_reply(infer, self.model.name, self.model.outputs, outputs)
                return Response(content, headers=headers)

            return model_batch(arrays, self.model), reply

        return await self._answer(request, decode)

    async def _predict(self, request: Request) -> Response:
        """Answer rows as JSON or CSV, in the same format unless the header Accept asks for the other one."""
        kind = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
        if kind not in (JSON, "text/csv"):
            raise Refusal(
                415, f"The content type is {errors.quoted(kind)}. Send {JSON} or text/csv, and name it in Content-Type."
            )
        accept = request.headers.get("accept", "")
        as_csv = "text/csv" in accept or (kind == "text/csv" and JSON not in accept)

        def decode(body: bytes) -> tuple[Batch, Callable[[Batch], Response]]:
            batch = (decode_csv if kind == "text/csv" else decode_rows)(body, self.model.inputs)
            encode, media = (encode_csv, "text/csv") if as_csv else (encode_rows, JSON)
            return batch, lambda outputs: Response(encode(self.model.outputs, outputs), headers={"content-type": media})

        return await self._answer(request, decode)

    async def _no_address(self, request: Request) -> Response:
        parts = request.path.split("/")
        if parts[1:3] == ["v2", "models"] and len(parts) > 3 and parts[3] != self.model.name:
            mine = errors.quoted(self.model.name)
            raise Refusal(404, f"There is no model {errors.quoted(parts[3])}. This server has {mine}.")
        raise Refusal(
            404, f"There is no address {errors.quoted(request.path)}. See /docs for the addresses of this server."
        )

    async def _answer(self, request: Request, decode: Decode) -> Response:
        """Read, predict and answer a request within the limits."""
        if self.in_flight >= self.settings.queue:
            raise Refusal(
                429, f"{self.settings.queue} requests wait already. Try again in a second.", {"retry-after": "1"}
            )
        self.in_flight += 1
        try:
            async with asyncio.timeout(self.settings.seconds):
                body = await read_body(request, self.settings.mib)
                if len(body) < LARGE_BODY:
                    batch, reply = decode(body)
                else:
                    async with self._large_bodies:
                        batch, reply = decode(body)
                        await asyncio.sleep(0)
                return reply(await self.batcher.predict(batch, require_rows(batch, self.settings.rows)))
        except TimeoutError:
            raise Refusal(
                503,
                f"There was no answer within {self.settings.seconds:g} seconds. Send the body faster, fewer rows, or "
                "try again later.",
                {"retry-after": "1"},
            ) from None
        finally:
            self.in_flight -= 1


def application(model: Model, settings: Settings | None = None) -> Application:
    """Return the application of a model, for any server of ASGI.

    Args:
        model: The model.
        settings: The limits. [default: None, those of `Settings()`]
    """
    return Application(model, settings or Settings())


def _problem(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return json_response({"error": message}, status, headers)


def _version() -> str:
    return str(sys.modules["bayesnorm"].__version__)
