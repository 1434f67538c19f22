"""A small client of HTTP/1.1 for load tests, and the server that they start."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HOST = "127.0.0.1"

# Seconds that a server may take to start, and a client waits for a reply.
START_SECONDS, REPLY_SECONDS = 120, 60

# Seconds that a client waits after a lost reply.
RETRY_SECONDS = 0.1


class LostReply(Exception):
    """The connection ended before a whole reply came."""


@dataclass
class Reply:
    """A whole reply of the server."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Connection:
    """One connection, which is opened again after it was closed.

    Args:
        port: The port of the server.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, data: bytes) -> Reply:
        """Send bytes and return the reply, or raise `LostReply`."""
        try:
            async with asyncio.timeout(REPLY_SECONDS):
                if self._streams is None:
                    self._streams = await asyncio.open_connection(HOST, self.port)
                self._streams[1].write(data)
                return await self._reply(self._streams[0])
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError) as error:
            self.close()
            raise LostReply(type(error).__name__) from error

    async def _reply(self, reader: asyncio.StreamReader) -> Reply:
        head = ["HTTP/1.1 100"]
        while head[0].split()[1] == "100":  # the server asks for the body, which is on its way
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if headers.get("connection") == "close":
            self.close()
        return Reply(int(head[0].split()[1]), headers, body)

    def close(self) -> None:
        """Close the connection."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def ask_once(port: int, data: bytes) -> Reply:
    """Send bytes over a connection of their own and return the reply, or raise `LostReply`."""
    connection = Connection(port)
    try:
        return await connection.send(data)
    finally:
        connection.close()


def post(path: str, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    """Return the bytes of a request."""
    lines = {"host": HOST, "content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body


def get(path: str) -> bytes:
    """Return the bytes of a request without a body."""
    return f"GET {path} HTTP/1.1\r\nhost: {HOST}\r\n\r\n".encode()


@dataclass
class Server:
    """A process of `bayesnorm serve`.

    Args:
        arguments: The arguments of the command after `serve`.
        log: The file to which its standard error goes.
        port: The port; 0 for a free one.
    """

    arguments: Sequence[str]
    log: Path
    port: int = 0
    process: subprocess.Popen[bytes] = field(init=False)

    def start(self) -> None:
        """Start the process and wait until it answers."""
        command = [sys.executable, "-m", "bayesnorm", "serve", *self.arguments, "--port", str(self.port)]
        before = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        end = time.monotonic() + START_SECONDS
        while not (
            address := re.search(
                rf"http://{HOST}:(\d+)/docs", self.log.read_bytes()[before:].decode("utf-8", "replace")
            )
        ):
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"The server did not start. See {self.log}.")
            time.sleep(0.02)
        self.port = int(address[1])
        while not asyncio.run(self._is_ready()):
            time.sleep(0.02)

    async def _is_ready(self) -> bool:
        try:
            return (await ask_once(self.port, get("/v2/health/ready"))).status == 200
        except LostReply:
            return False

    def kill(self) -> None:
        """End the process at once."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Ask the process to end, and return its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of the process so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mib(self) -> float:
        """Return the MiB of memory that the process uses now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return float(status.split("VmRSS:")[1].split()[0]) / 1024

    def log_text(self) -> str:
        """Return what the process wrote."""
        return self.log.read_text(errors="replace")


async def ask_all(
    port: int, connections: int, requests: int, request: Callable[[int], bytes], check: Callable[[int, Reply], bool]
) -> tuple[list[float], dict[str, int]]:
    """Send requests over connections that each wait for the reply before the next request.

    Args:
        port: The port of the server.
        connections: Number of connections.
        requests: Number of requests.
        request: Returns the bytes of a request by its number.
        check: Returns whether a reply of status 200 is right.

    Returns:
        The seconds of the replies of status 200, and the number of each outcome: "right", "wrong", "lost", or a status.
    """
    numbers, seconds, outcomes = iter(range(requests)), list[float](), dict[str, int]()

    async def work() -> None:
        connection = Connection(port)
        for number in numbers:
            started = time.perf_counter()
            try:
                reply = await connection.send(request(number))
                outcome = str(reply.status)
                if reply.status == 200:
                    seconds.append(time.perf_counter() - started)
                    outcome = "right" if check(number, reply) else "wrong"
            except LostReply:
                outcome = "lost"
                await asyncio.sleep(RETRY_SECONDS)
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
        connection.close()

    await asyncio.gather(*(work() for _ in range(connections)))
    return seconds, outcomes
