"""The shipped workload templates, held against what the CRDs of their kinds have.

`workload_fields.yaml` lists the fields; DynamoGraphDeployment's are from its Go types (the CRD has 1.6 MB).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from webhook.engine.bundle import SHIPPED, load_bundle

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.kube.templates import Workload

BUILT_IN: Final = {"", "apps", "batch"}
WORKLOADS: Final = {
    f"{each.kind}.{each.group}": each
    for each in load_bundle([SHIPPED]).index.workloads.values()
    if each.group not in BUILT_IN
}
FIELDS: Final[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("workload_fields.yaml").read_text())


def named(workload: Workload) -> Iterator[str]:
    """Every field that the documents name, but the object's own metadata."""
    for path in workload.paths:
        yield path.text
        if (layout := path.layout) is None:
            continue
        below = [layout.spec, *((*layout.spec, *each) for each in layout.containers)]
        below += [(*layout.spec, each) for each in layout.written or ()]
        below += [each for each in (layout.metadata, layout.gpus) if each]
        yield from (".".join(map(str, (path.text, *each))) for each in below)
        for source in layout.inherits:
            yield from (".".join(map(str, each)) for each in (source.metadata, source.spec) if each)
    yield from (each.path.text for each in workload.labels)


@pytest.mark.parametrize("kind", sorted(WORKLOADS))
def test_every_field_that_the_documents_name_is_in_the_crd(kind: str) -> None:
    workload, crd = WORKLOADS[kind], FIELDS[kind]
    assert (workload.resource, workload.namespaced) == (crd["resource"], crd["scope"] == "Namespaced")
    known = {*crd["fields"], *crd.get("free", ()), "metadata"}
    assert [each for each in named(workload) if each not in known] == []


def test_no_kind_is_listed_that_is_not_shipped() -> None:
    assert set(FIELDS) == set(WORKLOADS)
