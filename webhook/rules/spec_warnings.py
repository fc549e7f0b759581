"""Find probable mistakes in fields of a valid ``spec`` that several policy kinds share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from webhook.base.globs import is_glob
from webhook.policy.errors import did_you_mean
from webhook.policy.terms import Enforcement

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from webhook.kube.templates import Workload
    from webhook.policy.common import PolicySpec

_MISSPELT: Final = 0.9
"""The minimum similarity of a misspelled name to the correct one: ``statless``, ``PyTorchJob.kubeflow.com``."""


class SpecWarning(NamedTuple):
    """A probable mistake.

    Attributes:
        path: the field below ``spec``.
        text: the mistake and its correction.
    """

    path: tuple[str | int, ...]
    text: str


def hint_for(name: str, known: Collection[str]) -> str:
    """Return a hint for a name that is similar to a known one, or an empty string for known and other names."""
    return "" if name in known else did_you_mean(name, known, cutoff=_MISSPELT)


def misspelt_kinds(field: str, patterns: Sequence[str], workloads: Collection[Workload]) -> Iterator[SpecWarning]:
    """Yield a warning for each ``Kind.group`` in a field that is similar to a workload's kind."""
    kinds = {f"{workload.kind}.{workload.group}".removesuffix(".") for workload in workloads}
    for number, pattern in enumerate(patterns):
        if not is_glob(pattern) and (hint := hint_for(pattern, kinds)):
            yield SpecWarning((field, number), f"matches no known kind{hint}")


def never_denied(spec: PolicySpec, written: Mapping[str, Any]) -> Iterator[SpecWarning]:
    """Yield a warning for findings set to deny in a policy whose enforcement, possibly by default, is lower.

    ``written`` is the spec in the file.
    """
    denied = [name for name, level in written.get("findings", {}).items() if level == Enforcement.DENY]
    if denied and spec.enforcement is not Enforcement.DENY:
        why = "" if "enforcement" in written else " by default"
        lowered = f"{', '.join(denied)} can't be denied: the policy's enforcement is {spec.enforcement}{why}"
        text = f"{lowered}; set `enforcement: deny`, and `warn` for the findings that shouldn't deny"
        yield SpecWarning(("findings", denied[0]), text)
