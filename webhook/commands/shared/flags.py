"""Declare the flags that several commands share."""

from __future__ import annotations

import argparse
import inspect
import re
from pathlib import Path
from posixpath import normpath
from typing import TYPE_CHECKING, Final, TypeVar

from webhook.base.globs import problem_with
from webhook.engine.bundle import OWN_NAMESPACE
from webhook.inputs.policies import policies_path
from webhook.kube.quantity import parse_version
from webhook.rules.context import ASSUMED_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from webhook.runtime.address import Address


T = TypeVar("T")

_SHIPPED: Final = "repeatable; default: `shipped`, spotgate's own"
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def options_of(kind: Callable[..., T], namespace: argparse.Namespace) -> T:
    """Return the options of a command as its dataclass. Each field has the value of the flag with the same name."""
    names = inspect.signature(kind).parameters
    return kind(**{name: value for name, value in vars(namespace).items() if name in names})


def path(text: str) -> str:
    """Return a path from the command line. Raise ArgumentTypeError if it is empty, such as from an unset variable."""
    if not text:
        raise argparse.ArgumentTypeError("a path is empty: write . for the working directory")
    return text


def add_operation(parser: argparse.ArgumentParser) -> None:
    """Add ``--operation`` and ``--against``, for commands that evaluate more than CREATE."""
    scope = parser.add_mutually_exclusive_group()
    scope.add_argument(
        "--operation",
        choices=("CREATE", "UPDATE", "DELETE"),
        help="default: CREATE; with --kubeconfig, UPDATE of existing objects",
    )
    scope.add_argument(
        "--against",
        metavar="REF",
        help="evaluate branch changes since REF as UPDATE, CREATE, or DELETE",
    )


def add_rendered(parser: argparse.ArgumentParser) -> None:
    """Add ``--no-render``, ``--kustomize``, ``--helm``, and ``--helm-values``, for commands that write no manifests."""
    rendered = parser.add_argument_group("rendering; requires kustomize, kubectl, or helm")
    rendered.add_argument(
        "--no-render",
        dest="render",
        action="store_false",
        default=True,
        help="evaluate the files of kustomizations and charts without rendering them",
    )
    add_list(rendered, "--kustomize", "DIR", "evaluate the output of `kustomize build DIR`; repeatable")
    add_list(rendered, "--helm", "CHART", "evaluate the output of `helm template CHART`; repeatable")
    add_list(rendered, "--helm-values", "FILE", "values for these charts; repeatable")


def add_inputs(parser: argparse.ArgumentParser) -> argparse.Action:
    """Add the flags of a session: objects, cluster, and user. `judging_options` completes their values.

    Return the argument PATH.
    """
    paths = parser.add_argument(
        "paths", metavar="PATH", nargs="*", type=path, help="files and folders; - reads standard input"
    )
    leave_out = "skip files and folders with this name or path; repeatable"
    add_list(parser, "--ignore", "GLOB", leave_out, _glob)
    parser.add_argument(
        "--changed-since",
        metavar="REF",
        help="evaluate only documents that changed since the branch left REF; the others are state",
    )
    add_policies(parser)
    add_kubernetes_version(parser)
    cluster = parser.add_argument_group("the cluster that the objects are meant for")
    has = "node pools, Namespaces, Nodes, PodDisruptionBudgets, autoscalers, StatefulSets; files or folders; repeatable"
    add_list(cluster, "--state", "PATH", f"manifests of objects in the cluster: {has}")
    add_cluster(cluster)
    add_connection(cluster, "read a live cluster and the objects in it; writes nothing")
    cluster.add_argument("--partial", action="store_true", help="the cluster has more node pools than the files show")
    request = parser.add_argument_group("the request that the webhook would see")
    request.add_argument("--user", default="", help="user name; default: unknown, and exemptions by user don't apply")
    add_list(request, "--group", "GROUP", "group of the user; repeatable")
    parser.set_defaults(kubernetes_version=None, chart_values={})
    return paths


def _glob(text: str) -> str:
    if problem := problem_with(text):
        raise argparse.ArgumentTypeError(problem)
    return normpath(text)


def add_policies(parser: argparse.ArgumentParser, default: str = _SHIPPED) -> None:
    """Add ``--policies PATH``, a repeatable flag."""
    text = f"policy files or folders; {default}"
    add_list(parser, "--policies", "PATH", text, policies_path)


def add_connection(
    group: argparse._ActionsContainer, text: str = "the kubeconfig; default: $KUBECONFIG, else ~/.kube/config"
) -> None:
    """Add ``--kubeconfig`` and ``--context``. ``text`` is the help of the former."""
    group.add_argument("--kubeconfig", metavar="FILE", type=Path, help=text)
    group.add_argument("--context", metavar="NAME", help="context in the kubeconfig; default: the current one")


def add_list(
    group: argparse._ActionsContainer,
    flag: str,
    metavar: str,
    text: str,
    kind: Callable[[str], object] = str,
    *,
    short: str = "",
) -> None:
    """Add a repeatable flag, with a ``short`` form or without. The option is the list of its values."""
    flags = filter(None, (short, flag))
    group.add_argument(*flags, metavar=metavar, type=kind, action="append", default=[], help=text)


def add_namespace(parser: argparse._ActionsContainer, text: str) -> None:
    """Add ``--namespace NAME``, which defaults to spotgate's namespace."""
    default = f"{text}; default: %(default)s"
    parser.add_argument("--namespace", metavar="NAME", type=resource_name, default=OWN_NAMESPACE, help=default)


def add_format(
    parser: argparse.ArgumentParser, formats: Sequence[str] = ("table", "json"), text: str = "default: %(default)s"
) -> None:
    """Add ``-o FORMAT``. The first of the formats is the default."""
    parser.add_argument("-o", "--output", choices=formats, default=formats[0], help=text)


def add_cluster(group: argparse._ActionsContainer) -> None:
    """Add ``--cluster NAME``."""
    group.add_argument(
        "--cluster",
        metavar="NAME",
        default="",
        help="the cluster's name in node pools, such as infra/prod; default: `thisCluster`, or the only one in the "
        "files",
    )


def add_kubernetes_version(parser: argparse.ArgumentParser) -> None:
    """Add ``--kubernetes-version VERSION``."""
    parser.add_argument(
        "--kubernetes-version",
        metavar="VERSION",
        type=_parsed_by(parse_version),
        default=ASSUMED_VERSION,
        help="version of the API server and the kubelets; default: %s.%s" % ASSUMED_VERSION,  # noqa: UP031
    )


def resource_name(text: str) -> str:
    """Return the name of a Service or namespace. Raise ArgumentTypeError if it is invalid."""
    if not _NAME.fullmatch(text):
        problem = f"{text!r} isn't the name of a Service or namespace: use lower-case letters, digits and '-'"
        raise argparse.ArgumentTypeError(problem)
    return text


def object_name(text: str, kind: str = "Secret", example: str = "spotgate-certificates") -> tuple[str, str]:
    """Parse NAMESPACE/NAME into namespace and name. Raise ArgumentTypeError if it is invalid."""
    namespace, _, name = text.partition("/")
    if not (_NAME.fullmatch(namespace) and _NAME.fullmatch(name)):
        problem = f"{text!r} names no {kind}; write NAMESPACE/NAME, as in spotgate-system/{example}"
        raise argparse.ArgumentTypeError(problem)
    return namespace, name


def _parsed_by(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Return a type for a flag, whose error is the message of the parser's ValueError."""

    def parsed(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


def add_address(group: argparse._ActionsContainer, flag: str, what: str, port: int) -> None:
    """Add a flag for a listen address."""
    text, default = f"the {what} port; default: %(default)s", f"0.0.0.0:{port}"
    group.add_argument(flag, metavar="HOST:PORT", type=_parsed_by(_address), default=default, help=text)


def _address(text: str) -> Address:
    from webhook.runtime.address import Address

    return Address.parse(text)
