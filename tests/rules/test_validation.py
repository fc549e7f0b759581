"""Validation: hostile objects, the values in expressions, and the page."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.builders import cks_pool, view_of
from tests.docs.pages import blocks
from tests.rules.cases import NAMESPACE
from tests.rules.judged import CLUSTER, index_of, judged, template, warned, web_pod, workload
from tests.specs import spec_of
from webhook import cel
from webhook.cel.errors import EvaluationError
from webhook.cel.names import NAMES
from webhook.engine.bundle import load_bundle
from webhook.engine.engine import decide
from webhook.engine.lint import warnings
from webhook.model.decision import NO_TRACE, Finding, Outcome
from webhook.model.review import GroupVersionKind, GroupVersionResource, Request
from webhook.policy.errors import PolicyErrors
from webhook.rules.context import Context, Phase
from webhook.rules.subject import Subject
from webhook.rules.validation.compiler import Compiler
from webhook.rules.validation.rule import Validation, values_of
from webhook.rules.validation.spec import ValidationSpec

if TYPE_CHECKING:
    from webhook.capacity.view import ClusterView

JSON = dict[str, Any]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/policies/validation.md").read_text()
NOW = datetime(2026, 11, 21, tzinfo=UTC)

PODS = {"resourceRules": [{"apiGroups": [""], "resources": ["pods"], "operations": ["*"]}]}


def judge(
    value: JSON, *expressions: str | JSON, match: JSON = PODS, view: ClusterView = CLUSTER, **how: Any
) -> list[Finding]:
    validations = [{"expression": item} if isinstance(item, str) else item for item in expressions]
    return judged(value, "Validation", match=match, validations=validations, view=view, **how)


# params


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63) + 1, (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text("abc", max_size=3), values, max_size=3),
)


@given(JSON_VALUES)
def test_a_param_equals_the_same_value_in_an_object(value: Any) -> None:
    expression = {"expression": "params.x == object"}
    spec = spec_of(ValidationSpec, {"validations": [expression], "params": {"x": value}})
    compiled = Compiler(spec, cel.language()).compile("params.x == object", ("validations", 0), bool)
    assert compiled is not None
    assert compiled.evaluate(cel.language().values({"object": value})) is True


# Pools


def test_node_pools_are_converted_once_for_all_requests() -> None:
    class Recorder:
        """A language that records the node pools that it receives."""

        def __init__(self) -> None:
            self.pools: list[Any] = []

        def values(self, values: JSON, *_: Any) -> object:
            self.pools.append(values["pools"])
            return object()

    pods = GroupVersionResource("", "v1", "pods")
    request = Request(uid="u", operation="CREATE", kind=GroupVersionKind(), resource=pods)
    recorder = Recorder()
    one, other = view_of(cks_pool("gpu-spot")), view_of(cks_pool("gpu-spot"))
    for view in (one, one, other):
        context = Context(phase=Phase.VALIDATE, now=NOW, view=view)
        values_of(Subject(request, NO_TRACE), context, cast("Any", recorder), pools=True)
    first, again, changed = recorder.pools
    assert first is again is not changed
    assert first == changed != []


@pytest.mark.parametrize(
    ("spec", "reads"),
    [
        ({"validations": [{"expression": "object.kind == 'Pod'"}]}, False),
        ({"validations": [{"expression": "object.spec.pools.size() == 0"}]}, False),
        ({"validations": [{"expression": "'pools' == 'pools'"}]}, False),
        ({"validations": [{"expression": "pools.size() > 0"}]}, True),
        ({"validations": [{"expression": "false", "messageExpression": "string(pools.size())"}]}, True),
        (
            {
                "variables": [{"name": "n", "expression": "pools.size()"}],
                "validations": [{"expression": "variables.n > 0"}],
            },
            True,
        ),
        ({"validations": [{"expression": "namespaceObject.metadata.name == 'a'"}]}, False),
    ],
)
def test_pools_are_converted_only_for_expressions_that_name_them(spec: JSON, *, reads: bool) -> None:
    (policy,) = index_of("Validation", json.dumps({"match": PODS, **spec}, sort_keys=True)).policies
    assert isinstance(policy.validator, Validation)
    assert policy.validator.reads_pools is reads


# Pod templates


def test_a_template_is_judged_with_fields_that_other_policies_inject(tmp_path: Path) -> None:
    policies = [
        {"apiVersion": "spotgate.dev/v1", "kind": "GracefulTermination", "metadata": {"name": "graceful"}, "spec": {}},
        {
            "apiVersion": "spotgate.dev/v1",
            "kind": "Validation",
            "metadata": {"name": "own"},
            "spec": {
                "match": PODS,
                "validations": [
                    {"expression": "object.spec.?terminationGracePeriodSeconds.orValue(0) == 60"},
                    {"expression": "has(object.spec.containers[0].lifecycle.preStop)"},
                ],
            },
        },
    ]
    (tmp_path / "p.yaml").write_text(yaml.safe_dump_all(policies))
    value = workload(of=template(metadata={"labels": {"spotgate.dev/capacity": "spot"}}), replicas=2)
    raw = msgspec.Raw(json.dumps(value).encode())
    request = Request(
        uid="u",
        operation="CREATE",
        kind=GroupVersionKind("apps", "v1", "Deployment"),
        resource=GroupVersionResource("apps", "v1", "deployments"),
        namespace=NAMESPACE,
        object=raw,
    )
    decision = decide(request, load_bundle([tmp_path]).index, Context(phase=Phase.VALIDATE, now=NOW, view=CLUSTER))
    assert [finding for finding in decision.findings if finding.policy == "own"] == []
    assert json.loads(bytes(raw)) == value


# Hostile objects


BIG: JSON = {
    "containers": [{"name": f"c{number}"} for number in range(900)],
    "x": list(range(20_000)),
    "s": "a" * 50_000,
}


@pytest.mark.parametrize(
    "expression",
    [
        "object.spec.x.all(x, object.spec.x.all(y, object.spec.x.all(z, x + y + z >= 0)))",
        "object.spec.containers.all(c, object.spec.x.all(x, object.spec.x.exists(y, x == y)))",
        "object.spec.x.all(x, x in object.spec.x)",
        "object.spec.containers.all(c, object.spec.x == object.spec.x)",
        "object.spec.x.distinct().size() == 20000",
        "sets.contains(object.spec.x, object.spec.x)",
        "object.spec.containers.all(c, object.spec.s.replace('aaab', '').size() > 0)",
        "object.spec.containers.all(c, object.spec.x.sum() > 0)",
        "object.spec.containers.map(c, object.spec.x).flatten().size() > 0",
        "object.spec.containers.all(c, object.spec.s.replace('a', object.spec.s).size() > 0)",
        "object.spec.x.all(x, x >= 0)",
    ],
)
def test_an_expensive_expression_is_stopped(expression: str) -> None:
    (finding,) = judge(web_pod(**BIG), expression)
    assert finding.outcome is Outcome.DENY
    why = finding.reason.removeprefix("expression failed: ")
    assert why.startswith(("its loops took more than 10000 rounds", "it takes too long on this object ("))


def test_the_cost_of_split_includes_escaped_characters() -> None:
    raw = b'{"s": "' + b"\\u0020".join([b"a"] * 9000) + b'"}'
    shown = cel.language().values({"object": json.loads(raw)})
    with pytest.raises(EvaluationError, match="takes too long"):
        cel.language().compile("object.s.split(' ').map(x, x).size() > 0", bool, {}).evaluate(shown)


def test_an_expression_can_read_a_large_object_once() -> None:
    big: JSON = {"containers": [{"name": f"c{n}", "env": [{"name": "A", "value": "1"}] * 4} for n in range(990)]}
    assert (
        judge(web_pod(**big), "object.spec.containers.all(c, c.env.all(e, has(e.value) && e.name.matches('^[A-Z]+$')))")
        == []
    )


def test_a_deep_object_is_judged() -> None:
    deep: Any = 1
    for _ in range(500):
        deep = {"a": deep}
    assert judge(web_pod(x=deep), "has(object.spec.x.a)") == []


def test_a_large_object_is_not_judged() -> None:
    (finding,) = judge(web_pod(x="a" * 2_100_000), "true")
    assert finding.reason == "expression failed: the object is larger than 2048 KiB"


# Loading


def test_cel_is_imported_only_when_a_validation_policy_is_loaded(tmp_path: Path) -> None:
    spec = {"match": PODS, "validations": [{"expression": "true"}]}
    own = {"apiVersion": "spotgate.dev/v1", "kind": "Validation", "metadata": {"name": "own"}, "spec": spec}
    file = tmp_path / "own.yaml"
    file.write_text(yaml.safe_dump(own))
    code = f"""
import sys
from pathlib import Path
from webhook.engine.bundle import load_bundle
for paths in ([], [Path({str(file)!r})]):
    load_bundle(paths)
    print("cel_expr_python" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "False\nTrue\n"


# The page


def worked_example() -> JSON:
    (text,) = blocks(ROOT / "docs/policies/validation.md", "yaml")
    document: JSON = yaml.safe_load(text)
    return document


def on_the_page(value: JSON, **spec: Any) -> list[Finding]:
    document = worked_example()
    view = view_of(cks_pool("gpu-spot"))
    return judged(value, "Validation", view=view, **{**document["spec"], **spec})


def spot(*images: str, **container: Any) -> JSON:
    containers = [{"name": f"c{number}", "image": image, **container} for number, image in enumerate(images)]
    return workload(of=template(metadata={"labels": {"spotgate.dev/capacity": "spot"}}, containers=containers))


def test_the_worked_example_has_the_documented_effect() -> None:
    ours = "registry.example.com/trainer:1"
    assert on_the_page(spot(ours)) == []
    assert on_the_page(spot(ours, resources={"limits": {"memory": "64Gi"}})) == []
    assert on_the_page(workload(of=template())) == []
    (finding,) = on_the_page(spot(ours, resources={"limits": {"memory": "65Gi"}}))
    assert finding.reason == "a container on spot takes 64Gi of memory at most"
    (finding,) = judged(spot(ours), "Validation", view=CLUSTER, **worked_example()["spec"])
    assert finding.reason == "there is no spot pool with GPUs"


def test_the_page_shows_the_webhooks_messages() -> None:
    first, second = blocks(ROOT / "docs/policies/validation.md")
    (finding,) = on_the_page(spot("registry.example.com/a:1", "docker.io/trainer:1"))
    assert message_as(finding, "training-images") == first
    (finding,) = on_the_page(
        spot("registry.example.com/a:1"),
        validations=[{"expression": "object.spec.containers.all(c, c.resources.limits.size() > 0)"}],
    )
    assert message_as(finding, "training-images") == second


def message_as(finding: Finding, policy: str) -> str:
    return warned([msgspec.structs.replace(finding, policy=policy, outcome=Outcome.WARN)])


def test_every_field_of_a_pool_is_on_the_page() -> None:
    table = PAGE.partition("| field of a pool | |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`(\w+)`", "\n".join(line.split("|")[1] for line in table.splitlines() if "|" in line)))
    listing = "pools[0].map(key, key).sort().join(' ')"
    pool = replace(cks_pool("a"), gpu_count=1, desired=1, maximum=1)
    (finding,) = judge(web_pod(), {"expression": "false", "messageExpression": listing}, view=view_of(pool))
    assert set(finding.reason.split()) == named == set(NAMES.fields["pools[]"])


def test_every_function_is_on_the_page() -> None:
    page = set(re.findall(r"`([\w.]+)(?:\(q\))?`", PAGE))
    missing = {name.partition(".")[0] if name.startswith("ip.") else name for name in cel.language().functions} - page
    assert missing <= {
        *(
            "bool",
            "bytes",
            "double",
            "duration",
            "int",
            "string",
            "timestamp",
            "uint",
            "optional",
            "lists",
            "sets",
            "strings",
        ),
        *(name for name in missing if name.startswith("get") and name[3:4].isupper()),
        "reverse",
    }


# Several mistakes in one policy

HEAD = """\
apiVersion: spotgate.dev/v1
kind: Validation
metadata: {name: own}
spec:
  match: {resourceRules: [{apiGroups: [""], resources: [pods], operations: [CREATE, UPDATE]}]}
"""


def problems(folder: Path, text: str) -> list[str]:
    """Return a policy's mistakes, or else its warnings, as lines."""
    file = folder / "own.yaml"
    file.write_text(text)
    try:
        reported = tuple(warnings(load_bundle([file]), date(2026, 11, 21)))
    except PolicyErrors as error:
        reported = error.problems
    return [str(problem).replace(str(file), "own.yaml") for problem in reported]


def loading(folder: Path, **spec: Any) -> list[str]:
    document = {
        "apiVersion": "spotgate.dev/v1",
        "kind": "Validation",
        "metadata": {"name": "own"},
        "spec": {"match": PODS, "validations": [{"expression": "true"}], **spec},
    }
    return problems(folder, yaml.safe_dump(document, sort_keys=False, width=1000))


def test_all_mistakes_are_reported_without_consequential_ones(tmp_path: Path) -> None:
    lines = loading(
        tmp_path,
        variables=[
            {"name": "a", "expression": "objet"},
            {"name": "b", "expression": "variables.a.x"},
            {"name": "c", "expression": "1 +"},
        ],
        matchConditions=[{"name": "m", "expression": "variables.b == 1"}, {"name": "m2", "expression": "1"}],
        validations=[
            {"expression": "variables.c == 1"},
            {"expression": "variables.d == 1"},
            {"expression": "false", "messageExpression": "1"},
        ],
    )
    assert [line.split(": ")[1] for line in lines] == [
        "spec.validations[1].expression",
        "spec.validations[2].messageExpression",
        "spec.variables[0].expression",
        "spec.variables[2].expression",
        "spec.matchConditions[1].expression",
    ]


def test_a_mistake_in_an_alias_is_reported_at_its_field(tmp_path: Path) -> None:
    text = f"{HEAD}  variables: [{{name: x, expression: &x 'true'}}]\n  validations: [{{expression: &e objet.x}}, {{expression: *e}}]\n"
    first, second = problems(tmp_path, text)
    assert first.startswith("own.yaml:7:18: spec.validations[0]")
    assert second.startswith("own.yaml:7:44: spec.validations[1]")


def test_an_invalid_variable_name_hides_other_mistakes(tmp_path: Path) -> None:
    variables = [{"name": "all", "expression": "object.x"}, {"name": "my-var", "expression": "1"}]
    validations = [{"expression": "variables.all == 1"}, {"expression": "objet.x == 1"}]
    lines = loading(tmp_path, variables=variables, validations=validations)
    assert [line.partition(": ")[2].partition(":")[0] for line in lines] == ["spec.variables[1].name"]
