"""Fields of node pools whose changes the API server does not ask about."""

from __future__ import annotations

from typing import Any

import pytest

from tests.objects import BUNDLE
from tests.rules.conftest import shipped_provider, with_fields
from webhook.capacity.providers.query import Query
from webhook.registration.pool_conditions import ExcludedField, unasked_fields

AWS = ("infrastructure.cluster.x-k8s.io", "awsmanagedmachinepools")
POOL = next(each for each in shipped_provider("eks").readers if (each.group, each.resource) == AWS)
SCALING = {"scaling": {"maxSize": ExcludedField.SIZE}}


@pytest.mark.parametrize(
    ("changed", "fields"),
    [
        pytest.param({}, {"providerIDList": ExcludedField.CONTROLLERS}, id="nobody reads it"),
        pytest.param({"zones": Query("spec.providerIDList")}, {}, id="the reader reads it"),
        pytest.param({"zones": Query("[spec][?providerIDList].zone")}, {}, id="a condition reads it"),
        pytest.param({"controller_fields": (("spec", "scaling"),)}, {}, id="what is below it is read"),
        pytest.param({"controller_fields": (("spec", "taints", "x"),)}, {}, id="what it is in is read"),
    ],
)
def test_a_controllers_field_is_asked_about_only_where_it_is_read(
    changed: dict[str, Any], fields: dict[str, ExcludedField]
) -> None:
    provider = with_fields(shipped_provider("eks"), readers=(with_fields(POOL, **changed),))
    assert unasked_fields([provider])[AWS] == {"spec": SCALING | fields}


def test_a_field_that_another_providers_reader_reads_is_asked_about() -> None:
    other = with_fields(POOL, zones=Query("spec.providerIDList"), controller_fields=())
    providers = [with_fields(shipped_provider("eks"), readers=(each,)) for each in (POOL, other)]
    assert unasked_fields(providers)[AWS] == {"spec": SCALING}


def test_shipped_machine_pools_get_their_nodes_ids_unasked() -> None:
    unasked = unasked_fields(BUNDLE.providers.values())
    machine_pools = {resource: tree for (_, resource), tree in unasked.items() if resource.endswith("machinepools")}
    assert len(machine_pools) == 7
    for tree in machine_pools.values():
        spec = tree["spec"]
        assert isinstance(spec, dict)
        assert spec["providerIDList"] is ExcludedField.CONTROLLERS
