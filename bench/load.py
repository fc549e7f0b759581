"""A load generator with persistent TLS connections to 127.0.0.1. Each sends the next request after it gets an answer.

It builds requests once and hardly parses answers, so that it costs less than the measured server. It prints a JSON
object: the elapsed seconds, the server's CPU seconds in that time, and the median latency of each phase.
"""

from __future__ import annotations

import argparse
import select
import socket
import ssl
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final

import orjson

PHASES: Final = ("mutate", "validate")
_DEADLINE: Final = 60
"""Seconds after which the generator gives up."""


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads of a process, more precisely than the clock ticks of ``stat``."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


class Client:
    """A non-blocking connection that sends requests of the phases in turn."""

    def __init__(self, port: int, context: ssl.SSLContext, requests: dict[str, bytes], first: int) -> None:
        plain = socket.create_connection(("127.0.0.1", port), timeout=_DEADLINE)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = context.wrap_socket(plain, server_hostname="127.0.0.1")
        self.socket.setblocking(False)  # noqa: FBT003 - socket's signature
        self.latencies: dict[str, list[float]] = {phase: [] for phase in PHASES}
        self._requests = requests
        self._turn = first
        self._received = b""
        self._started = 0.0

    def send(self) -> None:
        """Send the next request, which fits into the socket's buffer."""
        self._turn = (self._turn + 1) % len(PHASES)
        self._started = perf_counter()
        self.socket.sendall(self._requests[PHASES[self._turn]])

    def receive(self) -> bool:
        """Read the available data, and return whether the answer is complete."""
        try:
            data = self.socket.recv(65536)
        except ssl.SSLWantReadError:
            return False
        if not data:
            raise SystemExit("the server closed a connection")
        self._received += data
        head, _, body = self._received.partition(b"\r\n\r\n")
        length = head.lower().partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0]
        if not length or len(body) < int(length):
            return False
        if not head.startswith(b"HTTP/1.1 200 "):
            raise SystemExit(f"the server refused: {head.decode()}")
        self._received = b""
        self.latencies[PHASES[self._turn]].append(perf_counter() - self._started)
        return True


def run(port: int, pid: int, folder: Path, connections: int, count: int) -> dict[str, object]:
    """Send ``count`` requests over these connections, with the bodies in ``mutate.json`` and ``validate.json``."""
    requests = {phase: _request(phase, (folder / f"{phase}.json").read_bytes()) for phase in PHASES}
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    clients = [Client(port, context, requests, number) for number in range(connections)]
    by_file = {client.socket.fileno(): client for client in clients}
    poll = select.epoll()
    for file in by_file:
        poll.register(file, select.EPOLLIN)
    cpu, started = cpu_seconds(pid), perf_counter()
    for client in clients:
        client.send()
    to_send, to_receive = count - connections, count
    while to_receive and perf_counter() - started < _DEADLINE:
        for file, _ in poll.poll(1):
            client = by_file[file]
            if not client.receive():
                continue
            to_receive -= 1
            if to_send:
                to_send -= 1
                client.send()
    if to_receive:
        raise SystemExit(f"{to_receive} answers are missing after {_DEADLINE} s")
    return {
        "seconds": perf_counter() - started,
        "cpu": cpu_seconds(pid) - cpu,
        "latency": {
            phase: median(taken for client in clients for taken in client.latencies[phase]) for phase in PHASES
        },
    }


def _request(phase: str, body: bytes) -> bytes:
    head = (
        f"POST /{phase}?timeout=3s HTTP/1.1\r\n"
        "Host: spotgate.spotgate-system.svc:443\r\n"
        "User-Agent: kube-apiserver-admission\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Accept: application/json, */*\r\n"
        "Content-Type: application/json\r\n"
        "Accept-Encoding: gzip\r\n"
        "\r\n"
    )
    return head.encode() + body


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("pid", type=int, help="the process of the server")
    parser.add_argument("folder", type=Path)
    parser.add_argument("connections", type=int)
    parser.add_argument("count", type=int)
    print(orjson.dumps(run(**vars(parser.parse_args()))).decode())
