"""A program `spotgate` that starts in a tenth of the time: a process that has already imported everything forks."""

from __future__ import annotations

import ast
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.loading import cache_shipped_documents
from webhook.commands import COMMANDS, command_parser, main
from webhook.engine.bundle import load_bundle
from webhook.rehearse.controlplane.process import WRAPPER

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[1]

_CLIENT: Final = f"""\
#!{sys.executable} -IS
import os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect(os.path.dirname(os.path.realpath(__file__)) + "/socket")
    start = repr((sys.argv[1:], os.getcwd(), dict(os.environ)))
    socket.send_fds(server, [start.encode()], [0, 1, 2])
    sys.exit(server.recv(1)[0])
"""


@contextlib.contextmanager
def quick_spotgate() -> Iterator[Path]:
    """Yield a folder with the program `spotgate`."""
    with tempfile.TemporaryDirectory(prefix="spotgate-") as name:
        folder = Path(name)
        (folder / "spotgate").write_text(_CLIENT)
        (folder / "spotgate").chmod(0o755)
        server = subprocess.Popen(
            [sys.executable, WRAPPER, str(os.getpid()), sys.executable, "-m", "tests.quick_start", name],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert server.stdout is not None
        try:
            assert server.stdout.readline() == b"ready\n"
            yield folder
        finally:
            server.terminate()
            server.communicate()


def serve(folder: Path) -> None:
    """Fork for each program that connects."""
    cache_shipped_documents()
    load_bundle()
    for command in COMMANDS:
        command_parser("spotgate", command)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no child becomes a zombie
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen()
        print("ready", flush=True)  # noqa: T201
        while True:
            connection, _ = listener.accept()
            with connection:
                if os.fork() == 0:
                    _run(connection)


def _run(connection: socket.socket) -> None:
    """Run the command line that the client sends, with its streams; send back the exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    start, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    arguments, folder, environment = ast.literal_eval(start.decode())
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    # Close the streams before the client ends: a reader must not wait for this process.
    with open(0) as sys.stdin, open(1, "w") as sys.stdout, open(2, "w", buffering=1) as sys.stderr:
        code = main(arguments)
    connection.send(bytes([code]))
    os._exit(0)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
