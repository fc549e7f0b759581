"""Find what a pool's limits (Karpenter's ``spec.limits``) allow: no nodes at all, none with GPUs, or some.

Limits apply to all nodes together. A machine that has more of a resource than they allow is never created, so limits
below the smallest machine allow none. What a machine has is a fact about its provider; the only certain one is that
GPUs are whole.

Source: https://karpenter.sh/docs/concepts/nodepools/#speclimits
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Final

from webhook.capacity.providers.pool import Gpu
from webhook.capacity.providers.requirements import NO_REQUIREMENTS
from webhook.kube.quantity import canonical_quantity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from webhook.base.globs import Globs
    from webhook.capacity.providers.reader_schema import LeastSpec
    from webhook.capacity.providers.requirements import Requirements

_NOTHING: Final = Decimal(0)
_WHOLE: Final = Decimal(1)
"""The least GPUs of a machine that has any."""

_KIBI: Final = 1024


def within_limits(
    limits: Mapping[str, Decimal], gpu: Gpu, least: LeastSpec, gpu_resources: Globs, requirements: Requirements | None
) -> tuple[Gpu, str]:
    """Return which GPUs the limits allow, and why they allow no nodes; empty if they may allow some."""
    machine = dict(least.machine)
    for label, resource in least.counted.items():
        lowest = (requirements or NO_REQUIREMENTS).of(label).lowest
        if lowest is not None:
            machine[resource] = max(Decimal(lowest), machine.get(resource, _NOTHING))
    no_gpus = ""
    for resource, amount in sorted(limits.items()):
        of_gpus = gpu_resources.match(resource)
        has = machine.get(resource, _WHOLE if of_gpus else _NOTHING)
        if amount <= 0 or amount < has:
            because = _because(resource, amount, f"a machine has at least {amount_text(has)}")
            if not of_gpus:
                return gpu, because
            no_gpus = no_gpus or because
        elif amount < (has := least.gpu_machine.get(resource, _NOTHING)):
            no_gpus = no_gpus or _because(resource, amount, f"a machine with GPUs has at least {amount_text(has)}")
    # If it is unknown whether the machines have GPUs, only those without remain.
    return (Gpu.NO, "") if no_gpus and gpu is not Gpu.YES else (gpu, no_gpus)


def _because(resource: str, amount: Decimal, has: str) -> str:
    more = f", and {has}" if amount > 0 else ""
    return f"its limits allow {amount_text(max(amount, _NOTHING))} of {resource}{more}"


def amount_text(amount: Decimal) -> str:
    """Return an amount as people write it: bytes with a binary suffix."""
    kibi, rest = divmod(amount, _KIBI)
    return str(canonical_quantity(f"{kibi:f}Ki")) if kibi and not rest else f"{float(amount):g}"
