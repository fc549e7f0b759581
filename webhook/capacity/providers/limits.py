"""What a pool's limits leave it: no nodes at all, none with GPUs, or some. Karpenter's ``spec.limits``.

Limits are of all nodes together. A machine that has more of a resource than they allow is never made, so limits below
the least machine leave none. What a machine has is a fact about its provider; certain is only that it has whole GPUs.

Source: https://karpenter.sh/docs/concepts/nodepools/#speclimits
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.capacity.providers.pool import Gpu
from webhook.capacity.providers.requirements import NO_REQUIREMENTS
from webhook.kube.quantity import canonical_quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.capacity.providers.requirements import Requirements
    from webhook.globs import Globs

_NOTHING: Final = Decimal(0)
_WHOLE: Final = Decimal(1)
"""GPUs that a machine has at least, of those that it has."""

_KIBI: Final = 1024


class Least(msgspec.Struct, frozen=True, kw_only=True):
    """The least that a machine has, by resource.

    Attributes:
        machine: any machine.
        gpu_machine: one with GPUs.
        gpu_resources: those of which only such a machine has any.
        counted: labels on which a pool has requirements -> the resource of a machine that they count.
    """

    machine: Mapping[str, Decimal]
    gpu_machine: Mapping[str, Decimal]
    gpu_resources: Globs
    counted: Mapping[str, str]

    def of_pool(self, requirements: Requirements | None) -> Mapping[str, Decimal]:
        """The least that a machine has which meets these."""
        least = dict(self.machine)
        for label, resource in self.counted.items():
            lowest = (requirements or NO_REQUIREMENTS).of(label).lowest
            if lowest is not None:
                least[resource] = max(Decimal(lowest), least.get(resource, _NOTHING))
        return least


def within_limits(
    limits: Mapping[str, Decimal], gpu: Gpu, least: Least, requirements: Requirements | None
) -> tuple[Gpu, str]:
    """What is left of the GPUs, and why no nodes are left at all; empty where some may be."""
    machine = least.of_pool(requirements)
    no_gpus = ""
    for resource, amount in sorted(limits.items()):
        of_gpus = least.gpu_resources.match(resource)
        has = machine.get(resource, _WHOLE if of_gpus else _NOTHING)
        if amount <= 0 or amount < has:
            because = _because(resource, amount, f"a machine has at least {_written(has)}")
            if not of_gpus:
                return gpu, because
            no_gpus = no_gpus or because
        elif amount < (has := least.gpu_machine.get(resource, _NOTHING)):
            no_gpus = no_gpus or _because(resource, amount, f"a machine with GPUs has at least {_written(has)}")
    if not no_gpus or gpu is Gpu.NO:
        return gpu, ""
    # Of machines that nobody knows, none with GPUs is left.
    return (gpu, no_gpus) if gpu is Gpu.YES else (Gpu.NO, "")


def _because(resource: str, amount: Decimal, has: str) -> str:
    if amount <= 0:
        return f"its limits allow 0 of {resource}"
    return f"its limits allow {_written(amount)} of {resource}, and {has}"


def _written(amount: Decimal) -> str:
    """As people write it: bytes with a binary suffix."""
    kibi, rest = divmod(amount, _KIBI)
    return str(canonical_quantity(f"{kibi:f}Ki")) if kibi and not rest else f"{float(amount):g}"
