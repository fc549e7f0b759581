"""Golden reviews: admission reviews in a cluster, and the answers of the shipped policies.

``cases.yaml`` describes each case. ``reviews/<case>.json`` is its review, recorded from a kube-apiserver 1.36, or edited by
hand. ``state/<cluster>.yaml`` is its cluster. ``expected/<case>.<phase>.json`` is the expected answer, with the patch as a
list of operations instead of base64.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jsonpatch
import orjson
import yaml

from tests.builders import BUNDLE
from webhook.inputs.state import FileState
from webhook.rules.context import NOTHING_KNOWN, Phase

if TYPE_CHECKING:
    from webhook.capacity.view import ClusterView

JSON = dict[str, Any]

HERE: Final = Path(__file__).parent
UNKNOWN_CLUSTER: Final = "unknown"
"""The cluster of the cases that have no state."""

NOT_MUTATED: Final = frozenset({"pod-not-mutated"})
"""Cases in which the mutating webhook was down, and its failurePolicy admitted the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A review in a cluster."""

    name: str
    cluster: str
    proves: str

    @property
    def state(self) -> Path | None:
        """Return the file with the manifests of the cluster; None if the cluster is unknown."""
        return None if self.cluster == UNKNOWN_CLUSTER else HERE / "state" / f"{self.cluster}.yaml"

    def review(self, phase: Phase) -> bytes:
        """Return the request of the API server: the recorded review, for validation with the mutated object."""
        review = (HERE / "reviews" / f"{self.name}.json").read_bytes()
        if phase is Phase.MUTATE or self.name in NOT_MUTATED:
            return review
        patch = self.expected(Phase.MUTATE)["response"].get("patch")
        return mutated(review, patch) if patch else review

    def expected_file(self, phase: Phase) -> Path:
        """Return the file of the expected answer."""
        return HERE / "expected" / f"{self.name}.{phase}.json"

    def expected(self, phase: Phase) -> JSON:
        """Return the expected answer, with the patch decoded."""
        answer: JSON = orjson.loads(self.expected_file(phase).read_bytes())
        return answer


def load_cases() -> list[Case]:
    """Return all cases, in the order of ``cases.yaml``."""
    clusters: dict[str, dict[str, str]] = yaml.safe_load((HERE / "cases.yaml").read_text())
    return [
        Case(name=name, cluster=cluster, proves=proves)
        for cluster, cases in clusters.items()
        for name, proves in cases.items()
    ]


@cache
def view_of(state: Path | None) -> ClusterView:
    """Return the view of the cluster that a file describes."""
    return NOTHING_KNOWN if state is None else FileState([state], BUNDLE.providers).view()


def mutated(review: bytes, patch: list[JSON]) -> bytes:
    """Return the review with the patch applied to its object."""
    envelope = orjson.loads(review)
    request = envelope["request"]
    request["object"] = jsonpatch.apply_patch(request["object"], patch)
    return orjson.dumps(envelope)


def readable(answer: bytes) -> JSON:
    """Return an answer with its patch decoded."""
    envelope: JSON = orjson.loads(answer)
    response = envelope["response"]
    if "patch" in response:
        response["patch"] = orjson.loads(base64.b64decode(response["patch"]))
    return envelope


def sent(expected: JSON) -> bytes:
    """Return the bytes of an expected answer, as the webhook sends them."""
    response = dict(expected["response"])
    if "patch" in response:
        response["patch"] = base64.b64encode(orjson.dumps(response["patch"])).decode()
    return orjson.dumps({**expected, "response": response})
