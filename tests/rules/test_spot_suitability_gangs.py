"""SpotSuitability: of Pods that work only together, none is on spot while another is on demand."""

from __future__ import annotations

from typing import Any, Final

from tests.rules.judged import CLUSTER, judged, template
from webhook.kube.templates import TEMPLATES_AT_MOST

JSON = dict[str, Any]

OWN_SPOT: Final = "own selector"


def part(capacity: str, **metadata: JSON) -> JSON:
    if capacity == OWN_SPOT:
        return template(nodeSelector={"compute.coreweave.com/node-pool": "cpu-spot"}, metadata=metadata)
    labels = {"spotgate.dev/capacity": capacity} if capacity else {}
    return template(metadata={**metadata, "labels": {**labels, **metadata.get("labels", {})}})


def jobset(**jobs: str) -> JSON:
    replicated = [{"name": name, "template": {"spec": {"template": part(each)}}} for name, each in jobs.items()]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "j"},
        "spec": {"replicatedJobs": replicated},
    }


def split(value: JSON) -> list[str]:
    """Return where a gang is said to be split."""
    found = judged(value, "SpotSuitability", view=CLUSTER)
    return [each.field.partition(".metadata")[0] for each in found if each.id == "spot-suitability/gang-split"]


def of_job(number: int) -> str:
    return f"spec.replicatedJobs[{number}].template.spec.template"


def test_a_gang_of_as_many_parts_as_are_judged_is_compared_with_its_first_part() -> None:
    parts = {f"w{number}": "spot" for number in range(TEMPLATES_AT_MOST - 1)}
    assert split(jobset(**parts, last="on-demand")) == [of_job(0)]
