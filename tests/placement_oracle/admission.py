"""spotgate's answer for a Pod of a random cluster. Only this module of the oracle imports `webhook`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jsonpatch
import msgspec

from tests.builders import BUNDLE, decided, defaulted, review
from webhook.documents import Document
from webhook.inputs.objects import Manifest
from webhook.inputs.state import view_of
from webhook.rules.context import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable

JSON = dict[str, Any]


@dataclass(frozen=True)
class Admitted:
    """A Pod before and after admission, and the findings of its placement."""

    before: JSON
    after: JSON
    findings: tuple[str, ...]


def admit(pods: Iterable[JSON], state: Iterable[JSON]) -> list[Admitted]:
    """Send Pods through both phases, with these objects as the cluster's state."""
    manifests = [Manifest(Document("state.yaml", 1, None), (), o["apiVersion"], o["kind"], o) for o in state]
    view = view_of(manifests, BUNDLE.providers, complete=True)
    answers = []
    for pod in pods:
        before = defaulted(pod)
        patch = [operation.as_json() for operation in decided(review(before), Phase.MUTATE, view).patch]
        after = jsonpatch.apply_patch(before, msgspec.to_builtins(patch))
        findings = decided(review(after), Phase.VALIDATE, view).findings
        answers.append(Admitted(before, after, tuple(f.id for f in findings if f.id.startswith("spot-placement/"))))
    return answers
