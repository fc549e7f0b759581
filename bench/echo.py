"""A minimal aiohttp webhook, which reads the body and returns fixed JSON. Its cost is that of HTTP and TLS."""

from __future__ import annotations

import argparse
import asyncio
import socket
import ssl
from pathlib import Path

import uvloop
from aiohttp import web

from webhook.runtime.log import configure_logging, log


async def serve(certificate: Path, key: Path, bodies: dict[str, bytes]) -> None:
    """Answer each path with its body, until the process ends."""

    async def answer(request: web.BaseRequest) -> web.Response:
        await request.read()
        return web.Response(body=bodies[request.path], content_type="application/json")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    listener = socket.create_server(("127.0.0.1", 0))
    await asyncio.get_running_loop().create_server(web.Server(answer, access_log=None), sock=listener, ssl=context)
    log.info("listening", port=listener.getsockname()[1])
    await asyncio.Event().wait()


def _body(size: int) -> bytes:
    return b'{"padding":"' + b"x" * (size - 14) + b'"}'


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tls-cert", type=Path, required=True)
    parser.add_argument("--tls-key", type=Path, required=True)
    parser.add_argument("--mutate-bytes", type=int, required=True)
    parser.add_argument("--validate-bytes", type=int, required=True)
    options = parser.parse_args()
    configure_logging()
    answers = {"/mutate": _body(options.mutate_bytes), "/validate": _body(options.validate_bytes)}
    uvloop.run(serve(options.tls_cert, options.tls_key, answers))
