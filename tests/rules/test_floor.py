"""The on-demand floor: its size and ordinals. webhook/rules/spot_placement/cases.yaml tests its Pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import cks_pool, decided, review, view_of
from webhook.capacity.placement.floor import FLOOR_ANNOTATION, Floor, parse_floor
from webhook.rules.context import Phase

if TYPE_CHECKING:
    from webhook.model.decision import Decision

JSON = dict[str, Any]

VIEW = view_of(
    cks_pool("cpu-spot", gpu=False, taints=("spot=true:NoSchedule",)), cks_pool("cpu", spot=False, gpu=False)
)
RUNNING = replace(VIEW, floor_controller=True)


@pytest.mark.parametrize(
    ("text", "floor"),
    [
        ("2", Floor(2, 0)),
        ("0", Floor(0, 0)),
        ("20%", Floor(0, 20)),
        ("100%", Floor(0, 100)),
        ("2 + 20%", Floor(2, 20)),
        (" 2+20% ", Floor(2, 20)),
        ("101%", None),
        ("2 + 101%", None),
        ("20 %", None),
        ("-1", None),
        ("20% + 2", None),
        ("2.5", None),
        ("", None),
        ("two", None),
        ("٢", None),
    ],
)
def test_the_annotation_has_three_forms(text: str, floor: Floor | None) -> None:
    assert parse_floor(text) == floor


floors = st.builds(Floor, st.integers(0, 30), st.integers(0, 100))


@given(floors, st.integers(0, 200))
def test_the_floor_is_the_base_and_the_percentage_of_the_rest_rounded_up(floor: Floor, count: int) -> None:
    beyond = max(0, count - floor.base)
    need = floor.need(count)
    assert need - min(floor.base, count) == (floor.percent * beyond + 99) // 100
    assert 0 <= need <= count


@given(floors, st.integers(0, 200))
def test_the_floor_keeps_exactly_the_necessary_ordinals_on_demand(floor: Floor, count: int) -> None:
    assert sum(map(floor.keeps, range(count))) == floor.need(count)


def decision_on(manifest: JSON, phase: Phase, view: Any, **how: Any) -> Decision:
    body = review(manifest, f"apps/{manifest['kind'].lower()}s", kind=manifest["kind"])
    return decided(body, phase, view, **how)


def workload(floor: str, kind: str) -> JSON:
    metadata = {"labels": {"spotgate.dev/capacity": "spot"}, "annotations": {FLOOR_ANNOTATION: floor}}
    container = {"name": "main", "image": "registry.example/web:1", "ports": [{"containerPort": 80}]}
    body = {"replicas": 6, "template": {"metadata": metadata, "spec": {"containers": [container]}}}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web", "namespace": "shop"}, "spec": body}


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_a_template_gets_only_tolerations(kind: str) -> None:
    patch = decision_on(workload("2 + 20%", kind), Phase.MUTATE, RUNNING, patch_templates=True).patch
    placing = [operation.path for operation in patch if operation.policy == "spot-placement"]
    assert placing == ["/spec/template/spec/tolerations", "/spec/template/spec/tolerations/-"]
