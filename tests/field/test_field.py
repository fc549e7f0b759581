"""Public reports about spot capacity, rebuilt as small manifests: ``check`` and ``fix`` answer as the author needed.

``<case>/in.yaml`` has the objects, and ``<case>/state.yaml`` the cluster. ``<case>/expected.yaml`` names the report. For
each object, it lists all findings, and under ``patch`` what ``fix`` adds, by the field of each Pod's spec. It omits
objects with neither.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from webhook.commands.fix.edits import patch_file
from webhook.inputs.options import JudgingOptions
from webhook.inputs.policies import SHIPPED_WORD, policies_path
from webhook.judging.session import judge
from webhook.rules.context import ASSUMED_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _pytest.mark.structures import ParameterSet

    from webhook.judging.session import Judgements

JSON = dict[str, Any]

HERE: Final = Path(__file__).parent
EXPECTED: Final[dict[str, dict[str, JSON]]] = {
    file.parent.name: yaml.safe_load(file.read_text()) for file in sorted(HERE.glob("*/expected.yaml"))
}
POD_FIELDS: Final = {"nodeSelector", "tolerations", "affinity", "terminationGracePeriodSeconds", "containers"}


def documents(text: str) -> dict[str, JSON]:
    """Return the objects of a file by kind and name."""
    return {f"{value['kind']}/{value['metadata']['name']}": value for value in yaml.safe_load_all(text)}


def given(case: str) -> str:
    return (HERE / case / "in.yaml").read_text()


def objects() -> Iterator[ParameterSet]:
    """Yield each object of each case."""
    for case, expected in EXPECTED.items():
        for name in documents(given(case)):
            yield pytest.param(case, name, expected.get(name, {}), id=f"{case}-{name}")


@pytest.mark.parametrize(("case", "name", "expected"), list(objects()))
def test_the_author_gets_the_answer(case: str, name: str, expected: JSON) -> None:
    assert answers(case)[name] == expected


def test_each_expected_object_exists() -> None:
    for case, expected in EXPECTED.items():
        assert expected.keys() <= documents(given(case)).keys(), case


@cache
def answers(case: str) -> dict[str, JSON]:
    """Return the answer for each object, in the form of ``expected.yaml``."""
    before = documents(given(case))
    with TemporaryDirectory() as folder:
        file = Path(folder) / "in.yaml"
        file.write_text(given(case))
        results = judged(file, case)
        assert results.problems == []
        patched = [(manifest, judgement) for manifest, judgement in results.objects if judgement.patch]
        if patched:
            patch_file(str(file), patched, writes=True, shows=False)
        assert not any(judgement.patch for _, judgement in judged(file, case).objects)
        after = documents(file.read_text())
    answer = {}
    for manifest, judgement in results.objects:
        name = f"{manifest.kind}/{manifest.name}"
        findings = [
            {"id": finding.id, "field": finding.field}
            for finding in sorted(judgement.findings, key=lambda finding: finding.id)
        ]
        patch = dict(differences(before[name], after[name]))
        answer[name] = {key: value for key, value in (("findings", findings), ("patch", patch)) if value}
    return answer


def judged(file: Path, case: str) -> Judgements:
    """Evaluate a file in the cluster of a case, as ``check`` and ``fix`` do."""
    return judge(
        JudgingOptions(
            paths=[str(file)],
            policies=[policies_path(SHIPPED_WORD)],
            state=[str(HERE / case / "state.yaml")],
            ignore=[],
            cluster="",
            partial=False,
            kubernetes_version=ASSUMED_VERSION,
            kubeconfig=None,
            context=None,
            user="",
            group=[],
            changed_since=None,
            operation="CREATE",
        )
    )


def differences(before: Any, after: Any, field: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the field of each Pod's spec that differs, with the summary of what it adds, and other fields that differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        different = {key for key in after if before.get(key) != after[key]}
        if different & POD_FIELDS:
            yield field, added(summary(before), summary(after))
        for key in sorted(different - POD_FIELDS):
            yield from differences(before.get(key), after[key], f"{field}.{key}".lstrip("."))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from differences(old, new, f"{field}[{index}]")
    elif before != after:
        yield field, after


def summary(spec: JSON) -> JSON:
    """Return what a Pod's spec says about placement and termination, in short."""
    affinity = spec.get("affinity", {}).get("nodeAffinity", {})
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
    preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution", [])
    hooks = {
        container["name"]: container.get("lifecycle", {}).get("preStop", {}) for container in spec.get("containers", [])
    }
    return {
        "nodeSelector": spec.get("nodeSelector", {}),
        "required": sorted(map(term_text, required)),
        "preferred": sorted(term_text(term["preference"]) for term in preferred),
        "tolerations": sorted(map(toleration_text, spec.get("tolerations", []))),
        "grace": spec.get("terminationGracePeriodSeconds"),
        "preStop": {name: hook.get("sleep", {}).get("seconds", hook) for name, hook in hooks.items()},
    }


def added(before: JSON, after: JSON) -> JSON:
    """Return the parts of a summary that are new or differ."""
    parts: JSON = {}
    for key, value in after.items():
        if isinstance(value, dict):
            parts[key] = {name: value[name] for name in value if before[key].get(name) != value[name]}
        elif isinstance(value, list):
            parts[key] = [item for item in value if item not in before[key]]
        elif value != before[key]:
            parts[key] = value
    return {key: value for key, value in parts.items() if value}


def term_text(term: JSON) -> str:
    """Return a term of a node affinity, such as ``disk In ssd nvme and zone Exists``."""
    return " and ".join(
        " ".join([one["key"], one["operator"], *one.get("values", [])]) for one in term["matchExpressions"]
    )


def toleration_text(toleration: JSON) -> str:
    """Return a toleration like a taint of ``kubectl taint``: ``key=value:effect``."""
    value = f"={toleration['value']}" if "value" in toleration else ""
    return f"{toleration.get('key', '')}{value}:{toleration.get('effect', '')}".rstrip(":")
