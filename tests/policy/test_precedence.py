"""Which policy decides if several of a kind match, and which sets of policies are rejected."""

from __future__ import annotations

import fnmatch
import tempfile
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import ALL, EKS, KARPENTER, cks_pool, other_pool, view_of
from tests.engine.rules import NOW, request
from webhook.base.globs import may_share_a_name
from webhook.engine.bundle import SHIPPED, load_bundle
from webhook.engine.engine import decide
from webhook.policy.errors import PolicyErrors
from webhook.rules.context import Context, Phase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.capacity.view import ClusterView
    from webhook.engine.bundle import Bundle
    from webhook.model.decision import Decision

JSON = dict[str, Any]

KIND: Final = "GracefulTermination"
CKS_VIEW: Final = view_of(cks_pool("spot", gpu=False))
LABELS: Final = {"spotgate.dev/capacity": "spot"}
POD: Final[JSON] = {
    "metadata": {"name": "web", "labels": LABELS},
    "spec": {
        "terminationGracePeriodSeconds": 900,
        "containers": [{"name": "a"}],
        "nodeSelector": {"compute.coreweave.com/node-pool": "spot"},
        "tolerations": [{"key": "qos.coreweave.cloud/interruptable", "operator": "Exists"}],
    },
}
"""A Pod whose grace period is over the budget of every policy of the kind."""


def document(name: str, kind: str = KIND, **spec: Any) -> str:
    if kind == "ReservedLabels":
        spec["domains"] = ["example.com"]
    value = {"apiVersion": "spotgate.dev/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    return yaml.safe_dump(value, sort_keys=False)


def within(*globs: str, **spec: Any) -> JSON:
    """Return a spec that matches these namespaces."""
    return {"match": {"namespaces": {"include": list(globs)}}, **spec}


def loaded(folder: Path, *documents: str, shipped: bool = False) -> Bundle:
    for number, text in enumerate(documents):
        (folder / f"{number}.yaml").write_text(text)
    return load_bundle([folder, *([SHIPPED] if shipped else [])])


def refused(folder: Path, *documents: str, shipped: bool = False) -> list[tuple[str, int, str, str]]:
    """Return the file, line, field, and text of each mistake."""
    with pytest.raises(PolicyErrors) as caught:
        loaded(folder, *documents, shipped=shipped)
    return [
        (Path(problem.file).name, problem.line, problem.field, problem.text.replace(f"{folder}/", ""))
        for problem in caught.value.problems
    ]


def judged(
    bundle: Bundle, pod: JSON = POD, view: ClusterView = CKS_VIEW, phase: Phase = Phase.VALIDATE, **asked: Any
) -> Decision:
    offline = asked.pop("offline", False)
    context = Context(phase=phase, now=NOW, offline=offline).seeing(view, (1, 34))
    return decide(request(pod, **asked), bundle.index, context)


def deciders(bundle: Bundle, pod: JSON = POD, view: ClusterView = CKS_VIEW, **asked: Any) -> list[tuple[str, str]]:
    """Return the policy and outcome of each finding about the grace period or unknown facts."""
    findings = judged(bundle, pod, view, **asked).findings
    return list(dict.fromkeys((item.policy, str(item.outcome)) for item in findings if "pre-stop" not in item.id))


# Valid sets


def test_the_overriding_policy_decides_if_both_match(tmp_path: Path) -> None:
    bundle = loaded(
        tmp_path, document("base", overBudget="deny"), document("team", **within("team-*", overrides=["base"]))
    )
    assert deciders(bundle) == [("team", "warn")]
    assert deciders(bundle, namespace="other") == [("base", "deny")]


def test_precedence_is_transitive(tmp_path: Path) -> None:
    documents = [document("a", overrides=["b"]), document("b", overrides=["c"]), document("c", overBudget="deny")]
    documents += [document("d", "SpotPlacement", overrides=["e"]), document("e", "SpotPlacement")]
    assert deciders(loaded(tmp_path, *documents)) == [("a", "warn")]


def test_an_overriding_policy_inherits_nothing(tmp_path: Path) -> None:
    bundle = loaded(
        tmp_path, document("a", overrides=["b"]), document("b", overBudget="deny", toleratingIsTargeting=True)
    )
    assert deciders(bundle) == [("a", "warn")]


def test_an_overridden_policys_exemption_still_applies_where_it_matches(tmp_path: Path) -> None:
    exempt = [{"users": ["jane"], "reason": "she knows"}]
    bundle = loaded(tmp_path, document("a", overrides=["b"]), document("b", **within("team-a", exempt=exempt)))
    decision = judged(bundle)
    assert (decision.findings, decision.audit) == (
        (),
        {"a": f"exempt: she knows, by exempt[0] at {tmp_path}/1.yaml:11"},
    )
    assert judged(bundle, phase=Phase.MUTATE).patch == ()
    assert deciders(bundle, namespace="other") == [("a", "warn")]
    assert deciders(bundle, userInfo={"username": "jo"}) == [("a", "warn")]


def test_no_other_policy_decides_if_the_deciding_policy_exempts(tmp_path: Path) -> None:
    exempt = [{"users": ["*"], "reason": "all of them"}]
    bundle = loaded(tmp_path, document("a", overrides=["b"], exempt=exempt), document("b", overBudget="deny"))
    assert deciders(bundle) == []
    assert judged(bundle, phase=Phase.MUTATE).patch == ()


def test_a_deciding_policy_that_only_audits_changes_nothing(tmp_path: Path) -> None:
    pod = {**POD, "spec": {"containers": [{"name": "a"}], "nodeSelector": POD["spec"]["nodeSelector"]}}
    both = [document("a", overrides=["b"], enforcement="audit"), document("b")]
    assert judged(loaded(tmp_path, both[1]), pod, phase=Phase.MUTATE).patch
    assert judged(loaded(tmp_path, *both), pod, phase=Phase.MUTATE).patch == ()


def test_a_policy_that_is_off_is_ignored(tmp_path: Path) -> None:
    assert deciders(loaded(tmp_path, document("a"), document("b", enforcement="off"))) == [("a", "warn")]
    assert deciders(loaded(tmp_path, document("a", overrides=["b"]), document("b", enforcement="off"))) == [
        ("a", "warn")
    ]


def test_both_policies_are_indeterminate_if_the_overriding_match_is_unknown(tmp_path: Path) -> None:
    match = {"namespaceSelector": {"matchLabels": {"tier": "prod"}}}
    bundle = loaded(tmp_path, document("a", overrides=["b"], match=match), document("b", overBudget="deny"))
    assert deciders(bundle, offline=True, namespace="new") == [("a", "indeterminate"), ("b", "indeterminate")]
    assert judged(bundle, phase=Phase.MUTATE, offline=True, namespace="new").patch == ()
    assert deciders(bundle, namespace="new") == [("b", "deny")]


def test_an_overriding_policy_with_an_unknown_selector_leaves_other_namespaces_decided(tmp_path: Path) -> None:
    match = {"namespaceSelector": {"matchLabels": {"tier": "prod"}}, "namespaces": {"include": ["other"]}}
    bundle = loaded(tmp_path, document("a", overrides=["b"], match=match), document("b", overBudget="deny"))
    assert deciders(bundle, offline=True, namespace="new") == [("b", "deny")]


def test_a_pod_template_is_decided_by_the_policy_that_matches_its_labels(tmp_path: Path) -> None:
    only = {"objectSelector": {"matchLabels": {"app": "web"}}}
    bundle = loaded(tmp_path, document("a", overrides=["b"], match=only), document("b"))
    template = {"metadata": {"labels": {**LABELS, "app": "web"}}, "spec": POD["spec"]}
    for labels, decider in (({"app": "web"}, "a"), ({}, "b")):
        template["metadata"]["labels"] = LABELS | labels
        assert deciders(
            bundle, {"metadata": {"name": "w"}, "spec": {"template": template}}, resource="deployments", group="apps"
        ) == [(decider, "warn")]


@pytest.mark.parametrize(
    ("view", "pool", "decider"),
    [
        (view_of(other_pool(KARPENTER, "k")), "", "b-karpenter"),
        (view_of(shown=("eks",)), "", "a-eks"),
        (view_of(other_pool(KARPENTER, "k", taints=("spot=true:NoSchedule",)), shown=("eks",)), "k", "b-karpenter"),
        (view_of(), "", "a-eks"),
    ],
)
def test_the_provider_of_the_pods_nodes_chooses_between_policies(
    tmp_path: Path, view: ClusterView, pool: str, decider: str
) -> None:
    assert {EKS.name, KARPENTER.name} <= ALL.keys()
    bundle = loaded(
        tmp_path,
        document("a-eks", "SpotPlacement", provider=["eks", "gke"]),
        document("b-karpenter", "SpotPlacement", provider="karpenter"),
    )
    selector = {KARPENTER.pool_name_label: pool} if pool else {}
    pod = {
        "metadata": {"name": "web", "labels": LABELS},
        "spec": {"containers": [{"name": "a"}], "nodeSelector": selector},
    }
    patched = {operation.policy for operation in judged(bundle, pod, view, Phase.MUTATE).patch}
    deciding = {name for name, _ in deciders(bundle, pod, view)}
    assert patched | deciding == {decider}


def test_policies_for_different_providers_imply_no_default_provider(tmp_path: Path) -> None:
    """A Pod must not get fields of a provider that is only a guess."""
    one, other = (document(name, "SpotPlacement", provider=name) for name in ("gke", "eks"))
    pod = {"metadata": {"name": "web", "labels": LABELS}, "spec": {"containers": [{"name": "a"}]}}
    assert judged(loaded(tmp_path, one), pod, view_of(), Phase.MUTATE).patch
    assert judged(loaded(tmp_path, one, other), pod, view_of(), Phase.MUTATE).patch == ()


CHAIN: Final = {
    "base": {"overBudget": "deny"},
    "team": within("team-*", overrides=["base"]),
    "one": within("team-a", overrides=["team"], untuned="raise-only", overBudget="clamp"),
    "other": within("other", overrides=["base"], overBudget="clamp"),
}


@settings(max_examples=15, deadline=None)
@given(order=st.permutations(sorted(CHAIN)), named=st.permutations(["a", "b", "c", "d"]))
def test_precedence_does_not_depend_on_names_or_file_order(order: Sequence[str], named: Sequence[str]) -> None:
    names = dict(zip(CHAIN, named, strict=True))
    documents = []
    for key in order:
        spec: JSON = dict(CHAIN[key])
        if "overrides" in spec:
            spec["overrides"] = [names[other] for other in spec["overrides"]]
        documents.append(document(names[key], **spec))
    with tempfile.TemporaryDirectory() as folder:
        bundle = loaded(Path(folder), *documents)
    grace = [{"op": "replace", "path": "/spec/terminationGracePeriodSeconds", "value": 270}]
    for namespace, decider in (("team-a", "one"), ("team-b", "team"), ("other", "other"), ("x", "base")):
        decision = judged(bundle, namespace=namespace)
        assert {finding.policy for finding in decision.findings} == {names[decider]}
        patch = judged(bundle, phase=Phase.MUTATE, namespace=namespace).patch
        assert {operation.policy for operation in patch} <= {names[decider]}
        assert bool(grace[0]["path"] in {operation.path for operation in patch}) == (decider in {"one", "other"})


# Kinds without precedence: every matching policy applies


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_a_finding_of_several_policies_is_reported_once_with_the_strongest_outcome(
    tmp_path: Path, order: tuple[str, str]
) -> None:
    weak, strong = order
    bundle = loaded(tmp_path, document(weak, "ReservedLabels", enforcement="warn"), document(strong, "ReservedLabels"))
    decision = judged(bundle, {"metadata": {"name": "web", "labels": {"example.com/a": "b", "example.com/c": "d"}}})
    assert [(finding.policy, str(finding.outcome), finding.field) for finding in decision.findings] == [
        (strong, "deny", 'metadata.labels["example.com/a"]'),
        (strong, "deny", 'metadata.labels["example.com/c"]'),
    ]


# Rejected sets


@pytest.mark.parametrize(
    ("documents", "mistakes"),
    [
        (
            [document("a"), document("b")],
            [("0.yaml", 5, "spec", f"a and b (1.yaml:1) can match the same Pod, and only one {KIND} decides: write `overrides: [b]` here, or make them match different Pods")],
        ),
        (
            [document("base"), document("bse", overrides=["bas"])],
            [
                ("1.yaml", 7, "spec.overrides[0]", f"there is no {KIND} bas, did you mean `base`?"),
            ],
        ),
        ([document("a", overrides=["graceful-termination"])], [("0.yaml", 7, "spec.overrides[0]", f"there is no {KIND} graceful-termination; to load the shipped ones: `--policies shipped`")]),
        (
            [document(name, kind, overrides=[name]) for name, kind in (("a", KIND), ("b", "SpotPlacement"))],
            [(file, 7, "spec.overrides[0]", "a policy can't override itself") for file in ("0.yaml", "1.yaml")],
        ),
        (
            [document("a", overrides=["b", "c"]), document("b", overrides=["a"]), document("c")],
            [
                ("0.yaml", 6, "spec.overrides", "it overrides itself through b, c; remove one `overrides`"),
                ("1.yaml", 6, "spec.overrides", "it overrides itself through a; remove one `overrides`"),
            ],
        ),
        (
            [document("a", overrides=["labels"]), document("labels", "ReservedLabels")],
            [("0.yaml", 7, "spec.overrides[0]", "labels is of kind ReservedLabels; a policy can only override policies of the same kind")],
        ),
        (
            [document("a", overrides=["b", "c"], enforcement="off"), document("b", overrides=["c"]), document("c")],
            [("0.yaml", 6, "spec.overrides", "a policy that is off overrides nothing, and b, c would decide; to leave Pods alone, write `exempt`")],
        ),
    ],
)  # fmt: skip
def test_an_ambiguous_set_is_rejected(
    tmp_path: Path, documents: list[str], mistakes: list[tuple[str, int, str, str]]
) -> None:
    assert sorted(refused(tmp_path, *documents)) == sorted(mistakes)


@pytest.mark.parametrize("kind", [KIND, "SpotPlacement"])
def test_a_teams_policy_next_to_the_shipped_one_is_rejected_with_a_fix(tmp_path: Path, kind: str) -> None:
    ((file, line, field, text),) = refused(tmp_path, document("a-team", kind), shipped=True)
    shipped = {KIND: "graceful-termination", "SpotPlacement": "spot-placement"}[kind]
    assert (file, line, field) == ("0.yaml", 5, "spec")
    assert f"write `overrides: [{shipped}]` here" in text
    loaded(tmp_path, document("a-team", kind, overrides=[shipped]), shipped=True)


def test_kinds_that_apply_together_have_no_overrides(tmp_path: Path) -> None:
    """A pool's owner must not be able to choose the weaker rule, so these kinds have no field `overrides`."""
    both = [document(name, "OnDemandFallback") for name in ("a", "b")]
    assert {policy.name for policy in loaded(tmp_path, *both).policies} == {"a", "b"}
    ((_, _, _, text),) = refused(tmp_path, both[0], document("b", "OnDemandFallback", overrides=["a"]))
    assert "unknown field `overrides`" in text


def selecting(part: str, **labels: str) -> JSON:
    return {"match": {part: {"matchLabels": labels}}}


def among(part: str, operator: str, *values: str) -> JSON:
    items = {"values": list(values)} if values else {}
    return {"match": {part: {"matchExpressions": [{"key": "tier", "operator": operator, **items}]}}}


@pytest.mark.parametrize(
    ("one", "other", "disjoint"),
    [
        (within("team-a"), within("team-b"), True),
        (within("team-a-*"), within("team-b*", "prod"), True),
        (within("team-*"), within("*-prod"), False),
        (within("team-?"), within("team-??"), False),
        (within("team-*-test"), within("team-*-prod"), True),
        (within("team-*"), within("team-b"), False),
        (within("team-*"), {"match": {"namespaces": {"exclude": ["team-*"]}}}, False),
        (selecting("namespaceSelector", tier="a"), selecting("namespaceSelector", tier="b", x="z"), True),
        (selecting("objectSelector", tier="a"), among("objectSelector", "In", "b", "c"), True),
        (selecting("objectSelector", tier="a"), among("objectSelector", "In", "a", "c"), False),
        (selecting("objectSelector", tier="a"), selecting("namespaceSelector", tier="b"), False),
        (selecting("objectSelector", tier="a"), selecting("objectSelector", team="b"), False),
        (selecting("objectSelector", tier="a"), among("objectSelector", "NotIn", "a"), False),
        (among("objectSelector", "Exists"), among("objectSelector", "DoesNotExist"), False),
        ({"provider": "cks"}, {"provider": ["gke", "eks"]}, True),
        ({"provider": ["cks", "gke"]}, {"provider": ["gke"]}, False),
        ({"provider": "cks"}, {}, False),
    ],
)
def test_only_namespaces_labels_and_providers_make_policies_disjoint(
    tmp_path: Path, one: JSON, other: JSON, *, disjoint: bool
) -> None:
    both = [document("a", **one), document("b", **other)]
    if disjoint:
        loaded(tmp_path, *both)
    else:
        assert "can match the same Pod" in refused(tmp_path, *both)[0][3]


@settings(max_examples=300, deadline=None)
@given(*[st.text(alphabet="ab*?[]!-", max_size=4)] * 2)
def test_globs_that_match_the_same_name_are_never_disjoint(one: str, other: str) -> None:
    names = ("".join(letters) for size in range(7) for letters in product("abc-", repeat=size))
    shared = any(fnmatch.fnmatchcase(name, one) and fnmatch.fnmatchcase(name, other) for name in names)
    assert may_share_a_name(one, other) or not shared


# Shipped policies


def test_the_shipped_policies_have_stable_names_and_one_policy_decides() -> None:
    """Teams name these in `overrides`, exemptions, and replacements: renaming one or adding a second breaks theirs."""
    assert sorted((document.kind, document.name) for document in load_bundle().documents if document.is_policy) == [
        ("EvictionStrategy", "eviction-strategy"),
        ("GracefulTermination", "graceful-termination"),
        ("NodePoolRules", "karpenter-controller"),
        ("NodePoolRules", "node-pool-rules"),
        ("OnDemandFallback", "on-demand-fallback"),
        ("ReclaimNotice", "reclaim-notice"),
        ("ReservedLabels", "reserved-labels"),
        ("ReservedLabels", "reserved-namespaces"),
        ("SpotPlacement", "spot-placement"),
        ("SpotSuitability", "spot-suitability"),
    ]
