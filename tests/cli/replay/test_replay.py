"""`spotgate replay`: the answers of other policies to recorded reviews."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import builders
from webhook.engine.bundle import load_bundle
from webhook.engine.engine import decide
from webhook.engine.response import respond
from webhook.inputs.state import FileState
from webhook.model.review import decode_review
from webhook.rules.context import Context, Phase, utc_now
from webhook.runtime.recording import encode_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.cli.conftest import Run, Write


ROOT = Path(__file__).parents[3]
STATE = ROOT / "examples" / "state"

POLICY = """\
apiVersion: spotgate.dev/v1
kind: ReservedLabels
metadata: {{name: labels}}
spec: {{domains: [{domain}], enforcement: {enforcement}}}
"""


def policy(domain: str = "example.com", enforcement: str = "deny") -> str:
    return POLICY.format(domain=domain, enforcement=enforcement)


SPOT = """\
apiVersion: spotgate.dev/v1
kind: SpotPlacement
metadata: {name: placement}
spec: {}
"""

GRACE = """\
---
apiVersion: spotgate.dev/v1
kind: GracefulTermination
metadata: {name: termination}
spec: {}
"""


def review(name: str = "web", **metadata: Any) -> bytes:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", **metadata},
        "spec": {"containers": [{"name": "main", "image": "example.com/web"}], "terminationGracePeriodSeconds": 30},
    }
    return builders.review(pod, kind="Pod", name=name, namespace="shop", user="jane")


def labelled(name: str = "web", domain: str = "example.com") -> bytes:
    return review(name, labels={f"{domain}/team": "a"})


def on_spot(name: str = "web") -> bytes:
    return review(name, labels={"spotgate.dev/capacity": "spot"})


def record(policies: Path, reviews: Iterable[bytes], *, phases: Iterable[Phase] = (Phase.VALIDATE,)) -> bytes:
    """Return the recording of `serve --record` for these reviews, each in these phases, as the API server sends it."""
    import jsonpatch  # noqa: PLC0415

    bundle = load_bundle([policies])
    view = FileState([STATE], bundle.providers).view()
    lines = []
    for body in reviews:
        request = decode_review(body)
        for phase in phases:
            context = Context(phase=phase, now=utc_now(), view=view)
            decision = decide(request, bundle.index, context)
            answer = respond(request.uid, decision, phase)
            lines.append(encode_line(request, decision, context, bundle, answer))
            if decision.patch:
                whole = json.loads(body)
                whole["request"]["object"] = jsonpatch.apply_patch(
                    whole["request"]["object"], [operation.as_json() for operation in decision.patch]
                )
                request = decode_review(json.dumps(whole).encode())
    return b"".join(lines)


# Changes ------------------------------------------------------------------------------------------------------------


def test_the_same_policies_answer_the_same(run: Run, write: Write) -> None:
    old = write("old.yaml", policy() + "---\n" + SPOT + GRACE)
    reviews = [review("plain"), labelled(), on_spot()]
    write("reviews.jsonl", record(old, reviews, phases=Phase))
    done = run("replay", "reviews.jsonl", "--policies", old)
    assert (done.code, done.out, done.err) == (0, "6 reviews: no change\n", "")


VARIABLES = """\
apiVersion: spotgate.dev/v1
kind: Validation
metadata: {name: levels}
spec:
  match: {resourceRules: [{apiGroups: [''], resources: [pods], operations: [CREATE]}]}
  validations:
    - expression: object.spec.containers.all(c, c.env.all(e, e.value in ['debug', 'info']))
      messageExpression: "'it is ' + object.spec.containers[0].env[0].value"
"""


@pytest.mark.parametrize("value", ["debug", "hunter2"])
def test_unrecorded_values_cause_no_change_under_the_same_policies(run: Run, write: Write, value: str) -> None:
    old = write("old.yaml", VARIABLES)
    asked = json.loads(review())
    asked["request"]["object"]["spec"]["containers"][0]["env"] = [{"name": "LEVEL", "value": value}]
    recorded = record(old, [json.dumps(asked).encode()])
    assert value.encode() not in recorded
    assert b'"reason":"it is (not recorded)"' in recorded
    write("reviews.jsonl", recorded)
    assert run("replay", "reviews.jsonl", "--policies", old).out == "1 review: no change\n"


def test_a_new_denial_is_reported_with_its_finding(run: Run, write: Write) -> None:
    old, new = write("old.yaml", policy("other.org")), write("new.yaml", policy())
    write("reviews.jsonl", record(old, [review("plain"), labelled("web")]))
    done = run("replay", "reviews.jsonl", "--policies", new)
    assert (done.code, done.err) == (1, "")
    assert done.out == (
        "reviews.jsonl:2  allowed -> denied  CREATE pods shop/web  validate\n"
        '    + deny  [labels] label example.com/team is in the reserved domain example.com (at metadata.labels["example.com/team"]) [reserved-labels/reserved]\n'
        "\n"
        "2 reviews: 1 change: 1 denied now, 1 with other findings\n"
    )


def test_a_removed_denial_is_reported(run: Run, write: Write) -> None:
    old, new = write("old.yaml", policy()), write("new.yaml", policy(enforcement="warn"))
    write("reviews.jsonl", record(old, [labelled()]))
    done = run("replay", "reviews.jsonl", "--policies", new)
    assert done.code == 1
    assert "denied -> warned" in done.out
    assert "    - deny  [labels]" in done.out
    assert "    + warn  [labels]" in done.out
    assert done.out.endswith("1 review: 1 change: 1 no longer denied, 1 with other findings\n")


def test_a_changed_patch_is_reported_by_operation(run: Run, write: Write) -> None:
    old, new = write("old.yaml", SPOT), write("new.yaml", SPOT + GRACE)
    write("reviews.jsonl", record(old, [on_spot()], phases=[Phase.MUTATE]))
    done = run("replay", "reviews.jsonl", "--policies", new)
    assert done.code == 1
    assert "reviews.jsonl:1  allowed  CREATE pods shop/web  mutate\n" in done.out
    assert "    + spec.terminationGracePeriodSeconds: 60\n" in done.out
    assert "nodeSelector" not in done.out
    assert done.out.endswith("1 review: 1 change: 1 with another patch\n")


def test_injections_of_new_policies_are_not_new_findings(run: Run, write: Write) -> None:
    """The validating webhook sees the output of the mutating webhook of the same policies, old or new."""
    old, new = write("old.yaml", policy()), write("new.yaml", policy() + "---\n" + SPOT + GRACE)
    write("reviews.jsonl", record(old, [on_spot()]))
    done = run("replay", "reviews.jsonl", "--policies", new)
    assert (done.code, done.out) == (0, "1 review: no change\n")


def test_a_change_in_many_reviews_is_reported_once(run: Run, write: Write) -> None:
    old, new = write("old.yaml", policy("other.org")), write("new.yaml", policy())
    write("reviews.jsonl", record(old, [labelled(f"web-{number}") for number in range(10)]))
    done = run("replay", "reviews.jsonl", "--policies", new)
    assert done.out.count("+ deny") == 1
    assert "    the same for 9 other reviews: reviews.jsonl:2 CREATE pods shop/web-1, " in done.out
    assert "reviews.jsonl:4 CREATE pods shop/web-3, ...\n" in done.out
    assert "10 reviews: 10 changes: 10 denied now" in done.out


def test_json_lists_every_changed_review(run: Run, write: Write) -> None:
    old, new = (
        write("old.yaml", policy("other.org") + "---\n" + SPOT),
        write("new.yaml", policy() + "---\n" + SPOT + GRACE),
    )
    write("reviews.jsonl", record(old, [labelled("a"), labelled("b"), on_spot("c")], phases=Phase))
    done = run("replay", "reviews.jsonl", "--policies", new, "-o", "json")
    assert done.code == 1
    assert done.json["summary"] == {"reviews": 6, "changes": 3, "denied": 2, "allowed": 0, "findings": 2, "patches": 1}
    assert [(change["line"], change["phase"], change["name"]) for change in done.json["changes"]] == [
        (2, "validate", "a"),
        (4, "validate", "b"),
        (5, "mutate", "c"),
    ]
    denied, _, patched = done.json["changes"]
    assert denied == {
        "file": "reviews.jsonl",
        "line": 2,
        "phase": "validate",
        "operation": "CREATE",
        "resource": "pods",
        "namespace": "shop",
        "name": "a",
        "user": "jane",
        "before": "allowed",
        "after": "denied",
        "findings": {
            "new": [
                {
                    "policy": "labels",
                    "id": "reserved-labels/reserved",
                    "outcome": "deny",
                    "reason": "label example.com/team is in the reserved domain example.com",
                    "field": 'metadata.labels["example.com/team"]',
                }
            ],
            "gone": [],
        },
        "patch": {"new": [], "gone": []},
    }
    assert {"op": "add", "path": "/spec/terminationGracePeriodSeconds", "value": 60} in patched["patch"]["new"]


# Cluster state and time ---------------------------------------------------------------------------------------------


def test_a_recorded_review_is_judged_with_its_recorded_cluster_state(run: Run, write: Write) -> None:
    old = write("old.yaml", SPOT)
    write("reviews.jsonl", record(old, [on_spot()], phases=[Phase.MUTATE]))
    write("empty/namespace.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n")
    assert run("replay", "reviews.jsonl", "--policies", old).code == 0
    elsewhere = run("replay", "reviews.jsonl", "--policies", old, "--state", "empty")
    assert elsewhere.code == 1
    assert "    - spec.nodeSelector: " in elsewhere.out


def test_against_compares_with_other_policies_and_not_with_the_recording(run: Run, write: Write) -> None:
    recorded, old, new = (
        write(f"{name}.yaml", policy(name)) for name in ("recorded.org", "example.com", "example.com.au")
    )
    write("reviews.jsonl", record(recorded, [labelled()]))
    assert run("replay", "reviews.jsonl", "--policies", old, "--against", old).code == 0
    done = run("replay", "reviews.jsonl", "--policies", new, "--against", old)
    assert done.code == 1
    assert "denied -> allowed" in done.out


@pytest.mark.parametrize("compact", [True, False])
def test_a_plain_review_is_judged_as_both_webhooks_would(run: Run, write: Write, *, compact: bool) -> None:
    old, new = write("old.yaml", SPOT), write("new.yaml", policy() + "---\n" + SPOT + GRACE)
    body = json.loads(on_spot())
    body["request"]["object"]["metadata"]["labels"]["example.com/x"] = "y"
    write("review.json", json.dumps(body, indent=None if compact else 2))
    done = run("replay", "review.json", "--policies", new, "--against", old, "--state", STATE, "-o", "json")
    assert (done.code, done.err) == (1, "")
    mutated, validated = done.json["changes"]
    assert (mutated["phase"], mutated["patch"]["new"][0]["path"]) == ("mutate", "/spec/terminationGracePeriodSeconds")
    assert (validated["phase"], [item["policy"] for item in validated["findings"]["new"]]) == ("validate", ["labels"])


def test_a_plain_review_without_state_is_left_undecided(run: Run, write: Write) -> None:
    selecting = policy().replace("spec: {", "spec: {match: {namespaceSelector: {matchLabels: {team: ml}}}, ")
    old, new = write("old.yaml", SPOT), write("new.yaml", SPOT + "---\n" + selecting)
    write("review.json", labelled())
    done = run("replay", "review.json", "--policies", new, "--against", old)
    assert "allowed -> indeterminate" in done.out
    write("state.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n")
    assert run("replay", "review.json", "--policies", new, "--against", old, "--state", "state.yaml").code == 0


def test_a_plain_review_without_policies_to_compare_is_reported(run: Run, write: Write) -> None:
    write("review.json", review())
    done = run("replay", "review.json", "--policies", write("new.yaml", policy()))
    assert done.code == 2
    assert done.err == ("review.json:1:1: has no recorded answer; pass the policies to compare with: --against\n")


def test_an_exemption_is_evaluated_at_the_recorded_time(run: Run, write: Write) -> None:
    exempt = "exempt: [{users: [jane], reason: moving, expires: 2020-01-31}]"
    exempted = write("old.yaml", policy().replace("spec: {", f"spec: {{{exempt}, "))
    line = json.loads(record(write("denying.yaml", policy()), [labelled()]))
    line["spotgate"]["time"] = "2020-01-15T00:00:00Z"
    write("reviews.jsonl", json.dumps(line))
    done = run("replay", "reviews.jsonl", "--policies", exempted)
    assert done.code == 1
    assert "denied -> allowed" in done.out


# Sources of reviews -------------------------------------------------------------------------------------------------


def test_folders_are_read_in_the_order_of_names_and_standard_input_too(run: Run, write: Write) -> None:
    old, new = write("old.yaml", policy("other.org")), write("new.yaml", policy())
    write("in/b.jsonl", record(old, [labelled("b", "example.com")]))
    write("in/a.jsonl", record(old, [labelled("a", "example.com")]))
    write("in/deep/c.json", record(old, [labelled("c", "example.com")]))
    write("in/.hidden/d.jsonl", "x")
    write("in/notes.txt", "x")
    done = run("replay", "in", "-", "--policies", new, "-o", "json", stdin=record(old, [labelled("d")]))
    assert (done.code, done.err) == (1, "")
    assert [(change["file"], change["name"]) for change in done.json["changes"]] == [
        ("in/a.jsonl", "a"),
        ("in/b.jsonl", "b"),
        ("in/deep/c.json", "c"),
        ("-", "d"),
    ]


def test_a_bad_line_is_reported_and_the_others_are_judged(run: Run, write: Write) -> None:
    old, new = write("old.yaml", policy("other.org")), write("new.yaml", policy())
    lines = record(old, [labelled("a"), labelled("b")]).splitlines()
    notes = json.loads(lines[0])
    notes["spotgate"]["phase"] = "dream"
    no_text = lines[0].replace(b"example.com/web", b"\xff")
    bad = [lines[0][: len(lines[0]) // 2], b"\xff", no_text, b"[]", b"{}", b"null", json.dumps(notes).encode()]
    patches = (b"x", b"e30=", b"W3t9XQ==")  # no base64, {}, [{}]
    bad += [lines[0].replace(b'"allowed":true', b'"allowed":true,"patch":"' + patch + b'"') for patch in patches]
    write("reviews.jsonl", b"\n".join([lines[0], *bad, b"", lines[1]]))
    done = run("replay", "reviews.jsonl", "--policies", new, "-o", "json")
    assert done.code == 2
    assert [change["line"] for change in done.json["changes"]] == [1, 13]
    assert [item["line"] for item in done.json["unreadable"]] == [*range(2, 12)]
    errors = done.err.splitlines()
    assert [line.split(": ")[0].split(":")[1] for line in errors] == [str(number) for number in range(2, 12)]
    assert all("was recorded by a version of spotgate that this one does not understand" in row for row in errors[-4:])


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("review.json", "", "review.json:1:1: is empty; it should hold reviews"),
        ("review.jsonl", "\n\n", "review.jsonl:1:1: is empty; it should hold reviews"),
        (
            "review.json",
            '{\n  "apiVersion": "v1",\n  "kind": "Pod"\n}',
            "review.json:1:1: expected admission.k8s.io/v1",
        ),
        ("review.json", '{\n  "apiVersion": "admi', "review.json:2:"),
        ("folder/notes.txt", "x", "folder: contains no reviews (*.jsonl, *.json)"),
        ("other.json", "{}", "review.json: can't be read: No such file or directory"),
    ],
)
def test_a_file_without_reviews_is_reported(run: Run, write: Write, name: str, content: str, error: str) -> None:
    write(name, content)
    path = "review.json" if name == "other.json" else Path(name).parts[0]
    done = run("replay", path, "--policies", write("new.yaml", policy()))
    assert done.code == 2
    assert done.err.startswith(error)
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize("flag", ["--policies", "--against"])
def test_bad_policies_are_reported(run: Run, write: Write, flag: str) -> None:
    write("reviews.jsonl", record(write("good.yaml", policy()), [review()]))
    write("bad.yaml", policy().replace("domains", "domian"))
    done = run("replay", "reviews.jsonl", "--policies", "good.yaml", flag, "bad.yaml")
    assert (done.code, done.out) == (2, "")
    assert "bad.yaml:4:" in done.err
