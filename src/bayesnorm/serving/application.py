"""The application: addresses, limits, the token, errors as JSON, and a line of log for each request."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import sys
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from .. import errors
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
JSON = "application/json"


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


class Application:
    """The handlers of one model.

    Args:
        model: The model.
        settings: The limits.
    """

    def __init__(self, model: Model, settings: Settings) -> None:
        self.model, self.settings = model, settings
        self.in_flight, self.ready = 0, False
        self.metrics = Metrics(lambda: self.in_flight, settings.queue)
        self.batcher = Batcher(model, self.metrics, settings.rows)

    def asgi(self) -> Starlette:
        """Return the application for a server of ASGI."""
        routes = [
            self._route("/v2/health/live", self._live, is_open=True),
            self._route("/v2/health/ready", self._readiness, is_open=True),
            self._route("/v2", self._server),
            self._route("/metrics", self._metrics),
            self._route("/openapi.json", self._openapi),
            self._route("/docs", self._docs),
        ]
        for path in ("/v2/models/{model}", "/v2/models/{model}/versions/1"):
            routes.append(self._route(path, self._metadata))
            routes.append(self._route(f"{path}/ready", self._readiness))
            routes.append(self._route(f"{path}/infer", self._infer, "POST"))
        if self.model.is_table:
            routes.append(self._route("/predict", self._predict, "POST"))
        return Starlette(routes=routes, lifespan=self._lifespan, exception_handlers={HTTPException: _refused_address})

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        worker = asyncio.create_task(self.batcher.run())
        self.ready = True
        try:
            yield
        finally:
            self.ready = False
            worker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await worker

    def _route(self, path: str, handler: Handler, method: str = "GET", is_open: bool = False) -> Route:
        """Return the route of a handler, with the token checked, errors as JSON, counted and logged."""

        async def handle(request: Request) -> Response:
            started, failure = time.perf_counter(), ""
            try:
                if not is_open:
                    self._require_token(request)
                self._require_model(request)
                response = await handler(request)
            except Refusal as refusal:
                failure = str(refusal)
                response = _problem(refusal.status, failure, dict(refusal.headers or {}))
            except errors.BayesNormError as error:
                failure = str(error)
                response = _problem(400, failure)
            except ClientDisconnect:
                failure = "The client closed the connection."
                response = _problem(400, failure)
            except Exception:
                failure = traceback.format_exc()
                response = _problem(500, "The server failed. Its log says why.")
            seconds = time.perf_counter() - started
            self.metrics.request(path, response.status_code, seconds if method == "POST" else None)
            if self.settings.log and (method == "POST" or failure):
                line = {"path": path, "status": response.status_code, "milliseconds": round(1e3 * seconds, 2)}
                write_log({**line, "error": failure} if failure else line)
            return response

        return Route(path, handle, methods=[method])

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

    def _require_model(self, request: Request) -> None:
        name = request.path_params.get("model", self.model.name)
        if name != self.model.name:
            raise Refusal(
                404, f"There is no model {errors.quoted(name)}. This server has {errors.quoted(self.model.name)}."
            )

    async def _live(self, _: Request) -> Response:
        return JSONResponse({"live": True})

    async def _readiness(self, _: Request) -> Response:
        return JSONResponse({"ready": self.ready}, 200 if self.ready else 503)

    async def _server(self, _: Request) -> Response:
        return JSONResponse({"name": "bayesnorm", "version": _version(), "extensions": ["binary_tensor_data"]})

    async def _metadata(self, _: Request) -> Response:
        tensors = {
            side: [{"name": t.name, "datatype": t.datatype, "shape": [-1, *t.shape]} for t in getattr(self.model, side)]
            for side in ("inputs", "outputs")
        }
        return JSONResponse({"name": self.model.name, "versions": ["1"], "platform": "bayesnorm", **tensors})

    async def _metrics(self, _: Request) -> Response:
        return PlainTextResponse(self.metrics.text(), media_type="text/plain; version=0.0.4")

    async def _openapi(self, _: Request) -> Response:
        return JSONResponse(description(self.model, _version()))

    async def _docs(self, _: Request) -> Response:
        return HTMLResponse(page(self.model, _version()))

    async def _infer(self, request: Request) -> Response:
        """Answer a request of the protocol, as JSON or binary."""

        def decode(body: bytes) -> tuple[Batch, Callable[[Batch], Response]]:
            infer, arrays = decode_request(body, request.headers.get(HEADER_LENGTH))

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
            return batch, lambda outputs: Response(encode(self.model.outputs, outputs), media_type=media)

        return await self._answer(request, decode)

    async def _answer(
        self, request: Request, decode: Callable[[bytes], tuple[Batch, Callable[[Batch], Response]]]
    ) -> Response:
        """Read, predict and answer a request within the limits."""
        if self.in_flight >= self.settings.queue:
            raise Refusal(
                429, f"{self.settings.queue} requests wait already. Try again in a second.", {"retry-after": "1"}
            )
        self.in_flight += 1
        try:
            async with asyncio.timeout(self.settings.seconds):
                batch, reply = decode(await self._body(request))
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

    async def _body(self, request: Request) -> bytes:
        """Return the body, or raise a refusal for one that is too large or compressed."""
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise Refusal(415, "The body is compressed. Send it without Content-Encoding.")
        most = int(self.settings.mib * 2**20)
        parts, size = list[bytes](), 0
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise Refusal(
                    413, f"The body has more than {self.settings.mib:g} MiB. Send fewer rows.", {"connection": "close"}
                )
            parts.append(part)
        return b"".join(parts)


def application(model: Model, settings: Settings | None = None) -> Starlette:
    """Return the application of a model, for any server of ASGI.

    Args:
        model: The model.
        settings: The limits. [default: None, those of `Settings()`]
    """
    return Application(model, settings or Settings()).asgi()


def _problem(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": message}, status, headers)


async def _refused_address(request: Request, error: Any) -> Response:
    advice = "Use another method" if error.status_code == 405 else "See /docs for the addresses of this server"
    return _problem(error.status_code, f"{error.detail}: {errors.quoted(request.url.path)}. {advice}.", error.headers)


def _version() -> str:
    return str(sys.modules["bayesnorm"].__version__)
