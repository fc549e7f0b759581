"""Flags that several commands have, and what they stand for."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from webhook.bundle import load_bundle
from webhook.cli.exits import CannotJudgeError
from webhook.context import ASSUMED_VERSION
from webhook.policy.errors import PolicyErrors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.bundle import Bundle

_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)(\.\d+)?([-+].*)?")


def add_policies(parser: argparse.ArgumentParser) -> None:
    """``--policies PATH``, which can be given again."""
    parser.add_argument(
        "--policies",
        metavar="PATH",
        type=Path,
        action="append",
        default=[],
        help="policy files, or a folder of them; can be given again; default: the policies that ship with spotgate",
    )


def add_kubernetes_version(parser: argparse.ArgumentParser) -> None:
    """``--kubernetes-version 1.34``."""
    parser.add_argument(
        "--kubernetes-version",
        metavar="VERSION",
        type=kubernetes_version,
        default=ASSUMED_VERSION,
        help="of the API server and the kubelets; default: %s.%s" % ASSUMED_VERSION,  # noqa: UP031
    )


def kubernetes_version(text: str) -> tuple[int, int]:
    """(major, minor) of ``1.34``, ``v1.34.2``.

    Raises:
        argparse.ArgumentTypeError: it is no version.
    """
    found = _VERSION.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no Kubernetes version; write it as 1.34")
    return int(found[1]), int(found[2])


def read_policies(paths: Sequence[Path], *, own_namespace: str = "") -> Bundle:
    """The bundle in these files and folders; none: the shipped one.

    Raises:
        CannotJudgeError: everything that is wrong with them.
    """
    try:
        return load_bundle(paths, own_namespace=own_namespace)
    except PolicyErrors as errors:
        raise CannotJudgeError(str(errors)) from None
