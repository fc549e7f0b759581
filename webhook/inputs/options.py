"""Define the options that select objects, the cluster, and the user for an evaluation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgingOptions:
    """The flags of `add_inputs`, `add_operation`, and `add_rendered`, completed from the project file.

    Attributes:
        operation: the operation for every object; None: as applying them requires.
        project: the folder of the project file, if any.
        chart_values: values files by chart folder, relative to ``project``.
    """

    paths: list[str]
    policies: list[Path]
    state: list[str]
    ignore: list[str]
    cluster: str
    partial: bool
    kubernetes_version: tuple[int, int]
    kubeconfig: Path | None
    context: str | None
    user: str
    group: list[str]
    changed_since: str | None
    operation: str | None
    against: str | None = None
    render: bool = False
    kustomize: list[str] = field(default_factory=list)
    helm: list[str] = field(default_factory=list)
    helm_values: list[str] = field(default_factory=list)
    project: str = ""
    chart_values: dict[str, tuple[str, ...]] = field(default_factory=dict)
    fail_on: str = ""
