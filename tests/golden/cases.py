"""Golden reviews: what the API server asks, in which cluster, and what the shipped policies answer.

``cases.yaml`` says what each one proves. Its review is ``reviews/<case>.json``, recorded from a kube-apiserver 1.36 or
changed by hand from one that was; the cluster is ``state/<cluster>.yaml``. The answers are ``expected/<case>.<phase>.json``,
with the patch readable: as a list of operations instead of base64.
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
from webhook.offline.manifests.state import FileState
from webhook.rules.context import NOTHING_KNOWN, Phase

if TYPE_CHECKING:
    from webhook.capacity.view import ClusterView

JSON = dict[str, Any]

HERE: Final = Path(__file__).parent
NOBODY_LOOKED: Final = "unknown"
"""The cluster of the cases that have no state."""

NOT_MUTATED: Final = frozenset({"pod-not-mutated"})
"""The mutating webhook was down, and its failurePolicy let the request pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A review in a cluster."""

    name: str
    cluster: str
    proves: str

    @property
    def state(self) -> Path | None:
        """The manifests of the cluster; None: nobody looked at it."""
        return None if self.cluster == NOBODY_LOOKED else HERE / "state" / f"{self.cluster}.yaml"

    def review(self, phase: Phase) -> bytes:
        """Return what the API server sends: the recorded review, and to the validating webhook the object as it was mutated."""
        review = (HERE / "reviews" / f"{self.name}.json").read_bytes()
        if phase is Phase.MUTATE or self.name in NOT_MUTATED:
            return review
        patch = self.expected(Phase.MUTATE)["response"].get("patch")
        return mutated(review, patch) if patch else review

    def expected_file(self, phase: Phase) -> Path:
        """Where the answer is stored."""
        return HERE / "expected" / f"{self.name}.{phase}.json"

    def expected(self, phase: Phase) -> JSON:
        """Return the stored answer."""
        answer: JSON = orjson.loads(self.expected_file(phase).read_bytes())
        return answer


def load_cases() -> list[Case]:
    """All cases, in the order of ``cases.yaml``."""
    clusters: dict[str, dict[str, str]] = yaml.safe_load((HERE / "cases.yaml").read_text())
    return [
        Case(name=name, cluster=cluster, proves=proves)
        for cluster, cases in clusters.items()
        for name, proves in cases.items()
    ]


@cache
def view_of(state: Path | None) -> ClusterView:
    """Return the cluster that a file describes."""
    return NOTHING_KNOWN if state is None else FileState([state], BUNDLE.providers).view()


def mutated(review: bytes, patch: list[JSON]) -> bytes:
    """Return the review with the object as the patch leaves it."""
    envelope = orjson.loads(review)
    request = envelope["request"]
    request["object"] = jsonpatch.apply_patch(request["object"], patch)
    return orjson.dumps(envelope)


def readable(answer: bytes) -> JSON:
    """Return an answer as it is stored."""
    envelope: JSON = orjson.loads(answer)
    response = envelope["response"]
    if "patch" in response:
        response["patch"] = orjson.loads(base64.b64decode(response["patch"]))
    return envelope


def sent(expected: JSON) -> bytes:
    """Return the bytes of a stored answer."""
    response = dict(expected["response"])
    if "patch" in response:
        response["patch"] = base64.b64encode(orjson.dumps(response["patch"])).decode()
    return orjson.dumps({**expected, "response": response})
