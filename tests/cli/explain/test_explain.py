"""``spotgate explain``: every policy's reason, where each part of the patch comes from, and the timelines."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import ON_DEMAND_POOL, SPOT_POOL
from webhook.base import terminal
from webhook.engine.findings import finding_texts

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from tests.cli.conftest import Run

    Write: TypeAlias = Callable[[str, str | bytes], Path]

STATE = SPOT_POOL + "  nodeTaints: [{key: example.com/spot, effect: NoSchedule}]\n---\n" + ON_DEMAND_POOL
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: trainer, namespace: research}
spec:
  podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}]}
  template:
    metadata: {labels: {spotgate.dev/capacity: spot}}
    spec:
      restartPolicy: Never
      containers:
        - name: main
          image: busybox
          resources: {limits: {nvidia.com/gpu: 8}}
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: team-a, labels: {example.com/team: a}}
spec: {containers: [{name: main, image: busybox}]}
"""


def labels(spec: str, name: str = "labels") -> str:
    """Return a policy that finds something in `POD`, with more in its spec."""
    return f"""\
apiVersion: spotgate.dev/v1
kind: ReservedLabels
metadata: {{name: {name}}}
spec:
  domains: [example.com]
{spec}"""


@pytest.fixture(autouse=True)
def state(write: Write) -> None:
    write("state.yaml", STATE)
    write("job.yaml", JOB)
    write("pod.yaml", POD)
    write("namespace.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: team-a, labels: {b: c}}\n")


def explain(run: Run, *arguments: str | Path) -> str:
    done = run("explain", *arguments)
    assert (done.code, done.err) == (0, "")
    return done.out


def judged_by(run: Run, write: Write, policy: str, *arguments: str | Path) -> str:
    """Return what is said of `POD`, without its title."""
    return explain(run, "--policies", write("policies/policy.yaml", policy), "pod.yaml", *arguments).split("\n\n", 1)[1]


def test_what_is_added_is_the_same_to_kubectl(run: Run, write: Write) -> None:
    write("state.yaml", STATE.replace("gpu-spot", "'y'"))
    said = explain(run, "--state", "state.yaml", "job.yaml")
    assert "+ spec.template.spec.nodeSelector:\n                compute.coreweave.com/node-pool: 'y'\n" in said


def test_a_finding_is_shown_with_its_field_and_its_fix(run: Run, write: Write) -> None:
    said = judged_by(run, write, labels(""))
    assert said.startswith("""\
denies      labels  ReservedLabels, enforcement: deny
            deny: label example.com/team is in the reserved domain example.com
              at metadata.labels["example.com/team"]
""")
    assert "              Fix: remove it" in said


@pytest.mark.parametrize(
    ("spec", "arguments", "says"),
    [
        (
            "  match: {namespaces: {exclude: ['team-*']}}",
            (),
            "skips       labels  ReservedLabels, enforcement: deny\n            match.namespaces.exclude names namespace team-a",
        ),
        (
            "  match: {namespaces: {include: [prod]}}",
            (),
            "skips       labels  ReservedLabels, enforcement: deny\n            match.namespaces.include does not name namespace team-a",
        ),
        (
            "  match: {objectSelector: {matchLabels: {a: b}}}",
            (),
            "skips       labels  ReservedLabels, enforcement: deny\n            match.objectSelector does not select the object",
        ),
        (
            "  match: {namespaceSelector: {matchLabels: {a: b}}}",
            ("--state", "namespace.yaml"),
            "skips       labels  ReservedLabels, enforcement: deny\n            match.namespaceSelector does not select namespace team-a",
        ),
        (
            "  match: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: prod}}}",
            (),
            "skips       labels  ReservedLabels, enforcement: deny\n            match.namespaceSelector does not select namespace team-a",
        ),
        (
            "  match: {namespaceSelector: {matchLabels: {a: b}}}",
            (),
            "can't tell  labels  ReservedLabels, enforcement: deny\n            the labels of namespace team-a are not known: judged as if\n",
        ),
        (
            "  match: {resourceRules: [{apiGroups: ['', example.com], apiVersions: [v2], resources: [pods], operations: [CREATE]}]}",
            (),
            "skips       labels  ReservedLabels, enforcement: deny\n            match.resourceRules[0].apiVersions does not name v1",
        ),
        (
            "  match: {resourceRules: [{apiGroups: [''], resources: [pods], operations: [UPDATE, DELETE]}]}",
            (),
            "skips       labels  ReservedLabels\n            match.resourceRules names pods on UPDATE, DELETE, not on CREATE",
        ),
        (
            "  match: {excludeResourceRules: [{apiGroups: ['*'], resources: [pods], operations: ['*']}]}",
            (),
            "skips       labels  ReservedLabels\n            match.excludeResourceRules[0] names pods on CREATE",
        ),
        (
            "  exempt: [{namespaces: [team-a], reason: it moves, expires: 2999-12-31}]",
            (),
            "exempts     labels  ReservedLabels, enforcement: deny\n            exempt: it moves (until 2999-12-31), by exempt[0] at policies/policy.yaml:6\n",
        ),
        (
            "  exempt: [{users: [jane], reason: she may}]",
            ("--user", "jane"),
            "exempts     labels  ReservedLabels, enforcement: deny\n            exempt: she may, by exempt[0] at policies/policy.yaml:6\n",
        ),
        (
            "  exempt: [{users: [jane], reason: she may}]",
            (),
            'denies      labels  ReservedLabels, enforcement: deny\n            not exempt by exempt[0] "she may": users',
        ),
        ("  enforcement: warn", (), "warns       labels  ReservedLabels, enforcement: warn\n            warn: label"),
        (
            "  enforcement: audit",
            (),
            "records     labels  ReservedLabels, enforcement: audit\n            audit: label",
        ),
        ("  enforcement: off", (), "off         labels  ReservedLabels\n            enforcement: off"),
    ],
)
def test_why_a_policy_acts_or_not_is_said_in_the_words_of_its_file(
    run: Run, write: Write, spec: str, arguments: tuple[str, ...], says: str
) -> None:
    said = judged_by(run, write, labels(spec), *arguments)
    assert said.startswith(says)


def test_an_exemption_that_has_ended_is_said_to_be_the_reason(run: Run, write: Write) -> None:
    policy = labels("  exempt: [{namespaces: [team-a], reason: it moved, expires: 2020-12-31}]")
    done = run("explain", "--policies", write("policy.yaml", policy), "pod.yaml")
    assert 'not exempt by exempt[0] "it moved (until 2020-12-31)": expires' in done.out
    assert "policy.yaml:6:53: spec.exempt[0].expires: warning: the exemption ended on 2020-12-31 (it moved)" in done.err


def test_a_finding_in_a_pod_template_says_why_it_is_only_a_warning(run: Run, write: Write) -> None:
    policy = """\
apiVersion: spotgate.dev/v1
kind: GracefulTermination
metadata: {name: termination}
spec: {overBudget: deny}
"""
    file = write("slow.yaml", JOB.replace("restartPolicy", "terminationGracePeriodSeconds: 600\n      restartPolicy"))
    said = explain(run, "--policies", write("policies/policy.yaml", policy), "--state", "state.yaml", file)

    assert "warns       termination  GracefulTermination, enforcement: deny" in said
    assert "              warn, not deny: it is about a pod template\n" in said
    assert "  it does not fit: SIGKILL comes 300 s early, and what is not saved by then is lost\n" in said


def test_templates_are_told_apart_where_they_are_judged_apart(run: Run, write: Write) -> None:
    ray = write(
        "ray.yaml",
        """\
apiVersion: ray.io/v1
kind: RayCluster
metadata: {name: ray}
spec:
  headGroupSpec: {template: {spec: {containers: [{name: head, image: ray}]}}}
  workerGroupSpecs:
    - groupName: gpu
      template:
        metadata: {labels: {spotgate.dev/capacity: spot}}
        spec: {containers: [{name: worker, image: ray, resources: {limits: {nvidia.com/gpu: 1}}}]}
""",
    )
    said = explain(run, "--state", "state.yaml", ray)

    assert (
        """\
            spec.headGroupSpec.template:
              left alone: nothing says that it targets spot
            spec.workerGroupSpecs[0].template:
              targets spot: label spotgate.dev/capacity: spot
"""
        in said
    )
    assert "no timeline: spec.headGroupSpec.template: nothing says that it targets spot\n" in said
    assert "When the node is reclaimed  spec.workerGroupSpecs[0].template\n" in said


def test_a_template_that_an_update_leaves_as_it_is_is_said_to_be(run: Run, write: Write) -> None:
    before = write("before.yaml", JOB)
    after = write("after.yaml", JOB.replace("name: trainer,", "name: trainer, labels: {a: b},"))
    said = explain(run, "--state", "state.yaml", "--state", before, "--operation", "UPDATE", after)
    assert "spec.template:\n  the request leaves it as it is: it is not judged again\n" in said
    assert "skips       spot-placement  SpotPlacement, enforcement: warn\n\n" in said


FEWER = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: research}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web, spotgate.dev/capacity: spot}}
    spec: {containers: [{name: main, image: busybox, ports: [{containerPort: 80}], resources: {limits: {nvidia.com/gpu: 1}}}]}
"""


def test_of_a_template_that_is_only_counted_again_nobody_says_what_would_be_injected(run: Run, write: Write) -> None:
    before = write("before.yaml", FEWER)
    after = write("after.yaml", FEWER.replace("replicas: 3", "replicas: 1"))
    said = explain(run, "--state", "state.yaml", "--state", before, "--operation", "UPDATE", after)
    assert "warns       spot-suitability" in said
    assert "skips       graceful-termination  GracefulTermination, enforcement: deny\n\n" in said
    assert "preStop sleep" not in said


def test_pod_templates_are_not_looked_at_when_their_workload_is_deleted(run: Run) -> None:
    said = explain(run, "--operation", "DELETE", "--state", "state.yaml", "job.yaml")
    assert (
        "skips       spot-placement  SpotPlacement\n"
        "            pod templates are looked at on CREATE and UPDATE, not on DELETE\n" in said
    )


def test_an_exemption_is_no_matter_where_nothing_is_found(run: Run, write: Write) -> None:
    exempt = labels("  exempt: [{users: [jane], reason: she may}]").replace("example.com", "other.org")
    assert judged_by(run, write, exempt).startswith(
        "passes      labels  ReservedLabels, enforcement: deny\n            the request adds no reserved label\n"
    )


def test_a_condition_that_is_false_leaves_the_object_out(run: Run, write: Write) -> None:
    policy = """\
apiVersion: spotgate.dev/v1
kind: Validation
metadata: {name: own}
spec:
  match: {resourceRules: [{apiGroups: [""], resources: [pods], operations: [CREATE]}]}
  matchConditions: [{name: is-b, expression: object.metadata.name == 'b'}]
  validations: [{expression: "false"}]
"""
    assert judged_by(run, write, policy).startswith(
        "skips       own  Validation, enforcement: deny\n            matchConditions[0] is-b is false\n"
    )


def test_a_finding_that_is_never_more_than_a_warning_says_so(run: Run, write: Write) -> None:
    policy = """\
apiVersion: spotgate.dev/v1
kind: NodePoolRules
metadata: {name: rules}
spec: {spotWithoutTaint: warn}
"""
    said = explain(run, "--policies", write("policies/policy.yaml", policy), write("pool.yaml", SPOT_POOL))
    assert "warns       rules  NodePoolRules, enforcement: deny" in said
    assert "              warn, not deny: this finding is never more than that\n" in said


@pytest.mark.parametrize(
    ("manifest", "says"),
    [
        (POD.replace("team-a", "kube-system"), "namespace kube-system is a system namespace: never touched\n"),
        ("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n", "no policy is for this kind of object\n"),
        ("apiVersion: example.com/v1\nkind: Odd\nmetadata: {name: odd}\n", "no policy is for this kind of object\n"),
        (POD, "no timeline: nothing says that it targets spot\n"),
        (POD.replace("example.com/team: a", "spotgate.dev/capacity: spot"), ", and no spot pool takes it\n"),
    ],
)
def test_what_holds_for_all_policies_is_said_once(run: Run, write: Write, manifest: str, says: str) -> None:
    said = explain(run, "--state", "state.yaml", write("object.yaml", manifest))
    assert said.count(says) == 1


def test_without_any_pool_no_provider_is_in_play(run: Run, write: Write) -> None:
    file = write("pod.yaml", POD.replace("example.com/team: a", "spotgate.dev/capacity: spot"))
    assert "pass node pools with --state or --kubeconfig\n" in explain(run, file)


def test_objects_in_a_list_are_explained_one_by_one_with_their_own_fields(run: Run, write: Write) -> None:
    items = "".join(
        f"  - {line}" if not number else f"    {line}" for number, line in enumerate(JOB.splitlines(keepends=True))
    )
    said = explain(
        run, "--state", "state.yaml", write("list.yaml", f"apiVersion: v1\nkind: List\nitems:\n{items}"), "pod.yaml"
    )
    assert re.findall(r"^(\w+ [\w/-]+)  ", said, re.MULTILINE) == ["Job research/trainer", "Pod team-a/web"]
    assert "            + spec.template.spec.terminationGracePeriodSeconds: 270\n" in said


def test_what_is_deleted_has_no_timeline(run: Run) -> None:
    said = explain(run, "--operation", "DELETE", "--state", "state.yaml", "job.yaml")
    assert "DELETE" in said
    assert "timeline" not in said
    assert "reclaimed" not in said


def test_an_object_that_cannot_be_judged_is_exit_code_2_and_the_others_are_explained(run: Run, write: Write) -> None:
    broken = write("broken.yaml", POD.replace("containers: [", "containers: [7, "))
    done = run("explain", broken, "pod.yaml")
    assert done.code == 2
    assert done.err.startswith("broken.yaml:4:")
    assert "Pod team-a/web  pod.yaml:1" in done.out


def test_picture_of_nothing_is_refused_with_where_to_look(run: Run) -> None:
    done = run("explain", "-o", "svg", "pod.yaml")
    assert (done.code, done.out) == (2, "")
    assert done.err == "error: no Pod here runs on spot, so there is no timeline to draw; -o text says why\n"


def test_picture_has_all_timelines(run: Run, write: Write) -> None:
    other = write("other.yaml", JOB.replace("name: trainer", "name: tester"))
    svg = explain(run, "--state", "state.yaml", "-o", "svg", "job.yaml", other)
    assert svg.startswith("<svg ")
    assert "Job research/trainer, spec.template, on CoreWeave CKS" in svg
    assert "Job research/tester, spec.template, on CoreWeave CKS" in svg


class _Page(HTMLParser):
    """What a page is made of: open elements must be closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def page_of(html: str) -> _Page:
    page = _Page()
    page.feed(html)
    page.close()
    assert page.open == []
    return page


def test_page_has_the_reasons_the_patch_and_the_timeline_and_needs_nothing_from_outside(run: Run) -> None:
    html = explain(run, "--state", "state.yaml", "-o", "html", "job.yaml", "pod.yaml")
    page = page_of(html)

    assert page.seen.count("svg") == 1
    assert page.seen.count("section") == 2
    assert not {"script", "link", "img", "iframe"} & set(page.seen)
    assert not {"src", "href", "onload"} & {name for name, _ in page.attributes}
    assert "url(" not in html
    assert "class checkpointing: a Job owns it, and it requests GPUs" in html
    assert "+ spec.template.spec.nodeSelector:\n    compute.coreweave.com/node-pool: gpu-spot</pre>" in html
    assert "prefers-color-scheme: dark" in html


def test_page_shows_what_users_write_and_does_not_run_it(run: Run, write: Write) -> None:
    text = "<script>alert(1)</script>"
    file = write(
        "pod.yaml",
        POD.replace("example.com/team: a", f'"spotgate.dev/workload-class": "{text}", spotgate.dev/capacity: spot'),
    )
    html = explain(run, "--state", "state.yaml", "-o", "html", file)
    assert "script" not in page_of(html).seen


def test_text_steers_no_terminal(run: Run, write: Write) -> None:
    file = write("pod.yaml", POD.replace("name: web", '"name": "we\\x1b[2Jb"'))
    assert "\x1b" not in explain(run, file)


def test_colours_are_for_terminals(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [[("denies", "bold red"), ("  why", "dim")]]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    terminal.show(lines)
    assert "\x1b[1;31mdenies" in capsys.readouterr().out

    monkeypatch.setenv("NO_COLOR", "1")
    terminal.show(lines)
    assert capsys.readouterr().out == "denies  why\n"


def test_a_pipe_does_not_wait_for_rich() -> None:
    code = (
        "import sys; from webhook.commands import main; main(['explain', 'pod.yaml']); assert 'rich' not in sys.modules"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, env={"PYTHONPATH": str(root)}
    )
    assert (done.returncode, done.stderr) == (0, "")


# Findings


@pytest.mark.parametrize("finding_id", sorted(finding_texts()))
def test_the_text_of_a_finding_is_told_by_its_id(run: Run, finding_id: str) -> None:
    done = run("explain", finding_id)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{finding_id}\n{finding_texts()[finding_id].means}\n")


def test_an_unknown_finding_is_an_error_that_says_which_there_are(run: Run) -> None:
    done = run("explain", "reserved-labels/reservd")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(
        "error: there is no file and no finding reserved-labels/reservd, did you mean `reserved-labels/reserved`?\n"
    )
    assert "\n  reserved-labels/misplaced-spotgate-key\n" in done.err
    assert "eviction-strategy/" not in done.err


def test_a_misspelt_kind_is_told_too(run: Run) -> None:
    done = run("explain", "reserved-label/reserved")
    assert done.code == 2
    assert "did you mean `reserved-labels/reserved`?" in done.err
    assert "\n  eviction-strategy/bypassed\n" in done.err


@pytest.mark.parametrize("path", ["deploy/web", "reserved-label"])
def test_a_path_that_is_not_there_is_no_finding(run: Run, path: str) -> None:
    assert "No such file or directory" in run("explain", path).err


def test_a_file_of_that_name_is_a_file(run: Run, write: Write) -> None:
    assert "Pod" in explain(run, write("reserved-labels/reserved", POD))
