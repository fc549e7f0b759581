"""Accelerators that a Pod requests by resource claims, device classes, parts of a GPU, and annotations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from tests.builders import ALL, cks_pool, view_of
from tests.capacity.targets import SPOT, target
from tests.rules.conftest import subject_of
from webhook.capacity.placement.target import Target
from webhook.kube.references import Reference, key_of, reference_from

if TYPE_CHECKING:
    from collections.abc import Mapping

GPU_TAINT = "nvidia.com/gpu"
POOLS = (cks_pool("cpu", gpu=False), cks_pool("gpu", taints=(f"{GPU_TAINT}=present:NoSchedule",)))


def devices(*requests: dict[str, Any]) -> Reference:
    return reference_from({"spec": {"devices": {"requests": list(requests)}}})


def exactly(name: str) -> dict[str, Any]:
    return {"name": "device", "exactly": {"deviceClassName": name}}


TEMPLATE = {"spec": {"spec": {"devices": {"requests": [exactly("gpu.nvidia.com")]}}}}
REFERENCES: Mapping[str, Reference] = {
    key_of("ResourceClaim", "team-a", "gpu"): devices(exactly("gpu.nvidia.com")),
    key_of("ResourceClaim", "team-a", "beta"): devices({"name": "device", "deviceClassName": "mig.nvidia.com"}),
    key_of("ResourceClaim", "team-a", "either"): devices(
        {"name": "device", "firstAvailable": [{"deviceClassName": "gpu.nvidia.com"}, {"deviceClassName": "dra.net"}]}
    ),
    key_of("ResourceClaim", "team-a", "amd"): devices(exactly("gpu.amd.com")),
    key_of("ResourceClaim", "team-a", "network"): devices(exactly("dra.net")),
    key_of("ResourceClaim", "team-b", "elsewhere"): devices(exactly("dra.net")),
    key_of("ResourceClaimTemplate", "team-a", "gpu"): reference_from(TEMPLATE),
}


def claiming(*claims: dict[str, str]) -> dict[str, Any]:
    return {"spec": {"resourceClaims": [{"name": f"device-{number}", **claim} for number, claim in enumerate(claims)]}}


def named(name: str) -> dict[str, Any]:
    return claiming({"resourceClaimName": name})


def limited(resource: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "app", "resources": {"limits": {resource: "1"}}}]}}


def annotated(key: str) -> dict[str, Any]:
    return {"metadata": {"annotations": {key: "0.5"}}}


BY_CLASS = "deviceclass.resource.kubernetes.io"


@pytest.mark.parametrize(
    ("pod", "expected", "gpu"),
    [
        (named("gpu"), ["gpu"], True),
        (named("beta"), ["gpu"], True),
        (named("either"), ["gpu"], True),
        (claiming({"resourceClaimTemplateName": "gpu"}), ["gpu"], True),
        (limited(f"{BY_CLASS}/gpu.nvidia.com"), ["gpu"], True),
        (limited("nvidia.com/gpumem"), ["gpu"], True),
        (limited("nvidia.com/gpucores"), ["gpu"], True),
        (annotated("gpu-fraction"), ["gpu"], True),
        (annotated("gpu-memory"), ["gpu"], True),
        (named("amd"), [], True),  # the taint is for nvidia.com
        (named("network"), ["cpu"], False),
        (limited(f"{BY_CLASS}/dra.net"), ["cpu"], False),
        (named("unheard-of"), ["cpu", "gpu"], None),
        (named("elsewhere"), ["cpu", "gpu"], None),
        (claiming({"resourceClaimName": "network"}, {"resourceClaimName": "unheard-of"}), ["cpu", "gpu"], None),
    ],
)
def test_a_pod_lands_on_pools_with_the_devices_that_it_requests(
    pod: dict[str, Any],
    expected: list[str],
    gpu: bool | None,  # noqa: FBT001
) -> None:
    whole = {"metadata": {"labels": SPOT, **pod.get("metadata", {})}, "spec": {"containers": [], **pod.get("spec", {})}}
    view = replace(view_of(*POOLS), references=REFERENCES)
    targeting = target(subject_of(whole).pod, view=view, providers=ALL, namespace="team-a")
    assert isinstance(targeting, Target)
    assert ([pool.name for pool in targeting.pools or ()], targeting.gpu) == (expected, gpu)
    assert (GPU_TAINT in {toleration.key for toleration in targeting.tolerations}) is ("gpu" in expected)
