"""Find probable mistakes in fields of a valid ``spec`` that several policy kinds share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pydantic.alias_generators import to_camel

from webhook.base.globs import is_glob
from webhook.policy.common import KindGlobs
from webhook.policy.errors import did_you_mean
from webhook.policy.terms import Enforcement

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from webhook.kube.templates import Workload
    from webhook.policy.common import Model, PolicySpec

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


def shared_warnings(spec: PolicySpec, workloads: Collection[Workload]) -> Iterator[SpecWarning]:
    """Yield the warnings about kinds that are similar to a workload's kind, and about findings that can't deny."""
    kinds = {f"{workload.kind}.{workload.group}".removesuffix(".") for workload in workloads}
    for name, value in spec:
        for number, pattern in enumerate(value.patterns if isinstance(value, KindGlobs) else ()):
            if not is_glob(pattern) and (hint := hint_for(pattern, kinds)):
                yield SpecWarning((to_camel(name), number), f"matches no known kind{hint}")
    findings: Model | None = getattr(spec, "findings", None)
    levels = findings.model_dump(by_alias=True, exclude_unset=True) if findings is not None else {}
    denied = [name for name, level in levels.items() if level == Enforcement.DENY]
    if denied and spec.enforcement is not Enforcement.DENY:
        why = "" if "enforcement" in spec.model_fields_set else " by default"
        lowered = f"{', '.join(denied)} can't be denied: the policy's enforcement is {spec.enforcement}{why}"
        text = f"{lowered}; set `enforcement: deny`, and `warn` for the findings that shouldn't deny"
        yield SpecWarning(("findings", denied[0]), text)
