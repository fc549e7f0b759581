"""The connection of commands that look at an installation in a live cluster."""

from __future__ import annotations

import asyncio
import os
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from webhook.cli.exits import CannotJudgeError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Awaitable, Callable

    from webhook.cluster.api import Api

T = TypeVar("T")


def add_connection(parser: ArgumentParser) -> None:
    """Add ``--kubeconfig`` and ``--context``, with kubectl's defaults."""
    parser.add_argument(
        "--kubeconfig", metavar="FILE", type=Path, help="of the cluster; default: $KUBECONFIG, else ~/.kube/config"
    )
    parser.add_argument("--context", metavar="NAME", help="of the kubeconfig; default: its current one")


def connected(command: str, options: Namespace, work: Callable[[Api], Awaitable[T]]) -> T:
    """Return the result of work on the cluster that the options name.

    Raises:
        CannotJudgeError: the cluster can't be read; the text names the command.
    """
    from webhook.cluster.api import Api, ApiError  # noqa: PLC0415 - a third of a second that --help need not wait
    from webhook.cluster.protocol import UnusableCredentialsError  # noqa: PLC0415

    async def run() -> T:
        in_cluster = getattr(options, "in_cluster", False)
        kubeconfig = None if in_cluster else options.kubeconfig or _default_kubeconfig()
        api = await Api.connect(kubeconfig, options.context)
        try:
            return await work(api)
        finally:
            await api.close()

    try:
        return asyncio.run(run())
    except UnusableCredentialsError as error:
        raise CannotJudgeError(f"spotgate {command}: {error}") from None
    except ApiError as error:
        fix = f"; allow it, see docs/cli/{command}.md" if error.status == HTTPStatus.FORBIDDEN else ""
        raise CannotJudgeError(f"spotgate {command}: the cluster can't be read: {error}{fix}") from None


def _default_kubeconfig() -> Path | None:
    """Return the file that kubectl uses without flags, or None in a Pod without it."""
    file = Path(os.environ.get("KUBECONFIG", "").partition(os.pathsep)[0] or Path.home() / ".kube" / "config")
    return file if file.exists() or "KUBERNETES_SERVICE_HOST" not in os.environ else None
