"""Connect a command to a live cluster, and explain failed reads."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import yaml

from webhook.base.exits import CannotJudgeError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from webhook.cluster.api import Api, ApiError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """The flags that select a cluster."""

    kubeconfig: Path | None = None
    context: str | None = None
    in_cluster: bool = False


async def connect(kubeconfig: Path | None, context: str | None = None) -> Api:
    """Connect to a cluster like `Api.connect`. Send log lines to stderr, because stdout is for the command's report."""
    import structlog  # noqa: PLC0415 - takes a third of a second, which --help doesn't need

    from webhook.cluster.api import Api  # noqa: PLC0415 - as above

    if not structlog.is_configured():
        structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    return await Api.connect(kubeconfig, context)


def run_on_cluster(command: str, options: Connection, work: Callable[[Api], Awaitable[T]]) -> T:
    """Run ``work`` on the cluster that the options select. Raise CannotJudgeError if the cluster can't be read."""
    from webhook.capacity.view import UnusableCredentialsError  # noqa: PLC0415
    from webhook.cluster.api import ApiError  # noqa: PLC0415 - takes a third of a second, which --help doesn't need

    async def run() -> T:
        kubeconfig = None if options.in_cluster else options.kubeconfig or _default_kubeconfig()
        api = await connect(kubeconfig, options.context)
        try:
            return await work(api)
        except ApiError as error:
            fix = f"; allow it, see docs/cli/{command}.md" if error.status == HTTPStatus.FORBIDDEN else ""
            raise CannotJudgeError(f"spotgate {command}: {unanswered(api, error)}{fix}") from None
        finally:
            await api.close()

    try:
        return asyncio.run(run())
    except UnusableCredentialsError as error:
        raise CannotJudgeError(f"spotgate {command}: {error}") from None


def unanswered(api: Api, error: ApiError) -> str:
    """Return why the cluster can't be read, and what to check."""
    from webhook.cluster.api import NO_ANSWER  # noqa: PLC0415 - as in `run_on_cluster`

    fix = {
        NO_ANSWER: "; check --kubeconfig and --context, and whether this machine can reach it",
        HTTPStatus.UNAUTHORIZED: "; the credentials are expired, or belong to another cluster: log in again",
    }.get(error.status, "")
    return f"the cluster at {api.url} can't be read: {error}{fix}"


def missing_rules(forbidden: Iterable[tuple[str, str]]) -> list[str]:
    """Return the ClusterRole rules that permit listing these groups and plurals, as lines of YAML."""
    groups: dict[str, list[str]] = {}
    for group, plural in sorted(forbidden):
        groups.setdefault(group, []).append(plural)
    rules = ({"apiGroups": [group], "resources": plurals, "verbs": ["list"]} for group, plurals in groups.items())
    return ["add to a ClusterRole of this user (403 above):", *as_rules(rules)] if groups else []


def as_rules(rules: Iterable[Mapping[str, list[str]]]) -> list[str]:
    """Return RBAC rules as lines of YAML."""
    return yaml.safe_dump(list(rules), default_flow_style=None, sort_keys=False, width=1000).splitlines()


def _default_kubeconfig() -> Path | None:
    """Return the files that kubectl uses by default, or None in a Pod without a kubeconfig."""
    listed = [path for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    named = listed or [str(Path.home() / ".kube" / "config")]
    existing = [path for path in named if Path(path).exists()]
    return Path(os.pathsep.join(existing or named)) if existing or "KUBERNETES_SERVICE_HOST" not in os.environ else None
