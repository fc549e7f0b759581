"""What `check -o sarif` offers as a fix, applied to the file by its regions alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Run

JSON = Any

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web  # é𝒳
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata:
      labels:
        app: web
%s
    spec:
      containers:
        - {name: web, image: example.com/web}
"""
POOL = """\
apiVersion: compute.coreweave.com/v1alpha1
kind: NodePool
metadata: {name: gpu}
spec:
  computeClass: default
  instanceType: gd-8xh100ib-i128
  targetNodes: 2
%s
"""
POD = '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", %s}, "spec": {"containers": []}}'
DAEMON_SET = """\
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  template:
    spec:
%s
      containers:
        - {name: agent, image: example.com/agent}
"""
EVICTION = """\
apiVersion: spotgate.dev/v1
kind: EvictionStrategy
metadata: {name: eviction}
spec: {}
"""


def results(run: Run, *arguments: str) -> list[JSON]:
    (ran,) = run("check", "-o", "sarif", *arguments).json["runs"]
    found: list[JSON] = ran["results"]
    assert ran["columnKind"] == "unicodeCodePoints"
    return found


def applied(fix: JSON) -> str:
    """Apply a fix to its file by its regions; return what it says that it does."""
    (change,) = fix["artifactChanges"]
    file = Path(change["artifactLocation"]["uri"])
    data = file.read_bytes()
    bom = data[:3] if data.startswith(b"\xef\xbb\xbf") else b""
    lines = data.removeprefix(bom).decode().split("\n")
    for replacement in reversed(change["replacements"]):
        region = replacement["deletedRegion"]
        first, last = region["startLine"] - 1, region["endLine"] - 1
        before, behind = lines[first][: region["startColumn"] - 1], lines[last][region["endColumn"] - 1 :]
        lines[first : last + 1] = (before + replacement["insertedContent"]["text"] + behind).split("\n")
    file.write_bytes(bom + "\n".join(lines).encode())
    text: str = fix["description"]["text"]
    return text


def offered(found: list[JSON]) -> list[JSON]:
    return [result["fixes"][0] for result in found if "fixes" in result]


def known(found: list[JSON]) -> list[str]:
    return [result["message"]["text"].partition("\n")[0] for result in found]


@pytest.mark.parametrize(
    ("file", "before", "after", "said"),
    [
        pytest.param(
            "web.yaml",
            DEPLOYMENT % "        foo.coreweave.cloud/bar: x  # why\n        # above\n        tier: web",
            DEPLOYMENT % "        # above\n        tier: web",
            'remove spec.template.metadata.labels["foo.coreweave.cloud/bar"]',
            id="a reserved label is removed with its line",
        ),
        pytest.param(
            "web.yaml",
            DEPLOYMENT % "        'qos.coreweave.cloud/interruptible': \"true\"  # why",
            DEPLOYMENT % "        'qos.coreweave.cloud/interruptable': \"true\"  # why",
            'rename spec.template.metadata.labels["qos.coreweave.cloud/interruptible"]'
            " to qos.coreweave.cloud/interruptable",
            id="a misspelt one is renamed, in its quotes",
        ),
        pytest.param(
            "web.json",
            POD % '"labels": {"foo.coreweave.cloud/bar": "x"}',
            POD % '"labels": {}',
            'remove metadata.labels["foo.coreweave.cloud/bar"]',
            id="in JSON",
        ),
        pytest.param(
            "list.yaml",
            "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n"
            "- metadata: {name: b, labels: {a: é𝒳, foo.coreweave.cloud/bar: x}} # c\n",
            "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n- metadata: {name: b, labels: {a: é𝒳}} # c\n",
            'remove metadata.labels["foo.coreweave.cloud/bar"]',
            id="in a list, in brackets, behind characters of any width",
        ),
        pytest.param(
            "web.yaml",
            ("\ufeff---\n# one\n" + POOL % "---\n" + DEPLOYMENT % "        foo.coreweave.cloud/bar: x").replace(
                "\n", "\r\n"
            ),
            ("\ufeff---\n# one\n" + POOL % "---\n" + DEPLOYMENT.replace("%s\n", "")).replace("\n", "\r\n"),
            'remove spec.template.metadata.labels["foo.coreweave.cloud/bar"]',
            id="as Windows writes it, in the second document",
        ),
        pytest.param(
            "web.yaml",
            DEPLOYMENT.replace("  name: web", "  labels: {spotgate.dev/capacity: spot}\n  name: web") % "",
            DEPLOYMENT.replace("  name: web", "  labels: {}\n  name: web") % "        spotgate.dev/capacity: spot\n",
            'move metadata.labels["spotgate.dev/capacity"] to spec.template.metadata.labels',
            id="a label of our own is moved to the Pods that it is for",
        ),
        pytest.param(
            "web.yaml",
            DEPLOYMENT % "      annotations:\n        spotgate.dev/capacity: spot",
            DEPLOYMENT % "        spotgate.dev/capacity: spot\n      annotations: {}",
            'move spec.template.metadata.annotations["spotgate.dev/capacity"] to spec.template.metadata.labels',
            id="an annotation of our own becomes a label",
        ),
        pytest.param(
            "web.yaml",
            DEPLOYMENT % "        spotgate.dev/capcity: spot",
            DEPLOYMENT % "        spotgate.dev/capacity: spot",
            'rename spec.template.metadata.labels["spotgate.dev/capcity"] to spotgate.dev/capacity',
            id="a misspelt label of our own is renamed",
        ),
        pytest.param(
            "pool.yaml",
            POOL % "  lifecycle:\n    scaleDownStrategy: 'idle-only'  # why",
            POOL % "  lifecycle:\n    scaleDownStrategy: 'IdleOnly'  # why",
            'write "IdleOnly" at spec.lifecycle.scaleDownStrategy',
            id="a word that a node pool has misspelt",
        ),
        pytest.param(
            "pool.yaml",
            POOL % '  autoscaling: "false"',
            POOL % "  autoscaling: false",
            "write false at spec.autoscaling",
            id="a text that is to be none",
        ),
        pytest.param(
            "pool.yaml",
            POOL % '  minNodes: "1"',
            POOL % "  minNodes: 1",
            "write 1 at spec.minNodes",
            id="a text that is to be a number",
        ),
        pytest.param(
            "agent.yaml",
            DAEMON_SET
            % "      nodeSelector: {sunk.coreweave.com/nodeset: a}\n      tolerations:\n        - key: is_gpu\n"
            "          operator: Exists\n        - key: is_cpu_compute\n          operator: Exists",
            DAEMON_SET
            % "      nodeSelector: {sunk.coreweave.com/nodeset: a}\n      tolerations:\n        - key: is_gpu\n"
            "          operator: Exists\n        - key: is_cpu_compute\n          operator: Exists\n"
            '        - key: sunk.coreweave.com/lock\n          operator: Equal\n          value: "true"\n'
            "        - key: node.coreweave.cloud/reserved\n          operator: Exists",
            "add to spec.template.spec.tolerations",
            id="tolerations that a DaemonSet on SUNK nodes lacks",
        ),
    ],
)
def test_a_fix_does_what_it_says_and_the_finding_is_gone(
    run: Run, write: Callable[[str, str | bytes], Path], file: str, before: str, after: str, said: str
) -> None:
    path = write(file, before)
    found = results(run, file)
    (mended,) = [result for result in found if "fixes" in result]

    assert applied(mended["fixes"][0]) == said

    assert path.read_bytes().decode() == after
    left = results(run, file)
    assert not offered(left)
    assert set(known([mended])).isdisjoint(known(left))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        pytest.param(
            '        interruptable: "true"',
            '        qos.coreweave.cloud/interruptable: "true"',
            "rename spec.template.metadata.labels.interruptable to qos.coreweave.cloud/interruptable",
            id="a label without its prefix",
        ),
        pytest.param(
            '        qos.coreweave.cloud/interruptable: "True"',
            '        qos.coreweave.cloud/interruptable: "true"',
            'write "true" at spec.template.metadata.labels["qos.coreweave.cloud/interruptable"]',
            id="a value in the wrong case",
        ),
        pytest.param(
            '        qos.coreweave.cloud/interruptable: "false"\n        a: b',
            "        a: b",
            'remove spec.template.metadata.labels["qos.coreweave.cloud/interruptable"]',
            id="a label that says nothing",
        ),
        pytest.param(
            '      annotations: {qos.coreweave.cloud/interruptable: "true"}',
            '        qos.coreweave.cloud/interruptable: "true"\n      annotations: {}',
            'move spec.template.metadata.annotations["qos.coreweave.cloud/interruptable"]'
            " to spec.template.metadata.labels",
            id="an annotation that is to be a label",
        ),
    ],
)
def test_an_eviction_label_without_effect_is_given_its_effect(
    run: Run, write: Callable[[str, str | bytes], Path], before: str, after: str, said: str
) -> None:
    write("policies.yaml", EVICTION)
    path = write("web.yaml", DEPLOYMENT % before)
    (fix,) = offered(results(run, "--policies", "policies.yaml", "web.yaml"))

    assert applied(fix) == said

    assert path.read_text() == DEPLOYMENT % after
    assert not results(run, "--policies", "policies.yaml", "web.yaml")


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param('        qos.coreweave.cloud/interruptable: "yes"', id="a value that may mean anything"),
        pytest.param(
            '        interruptable: "true"\n        qos.coreweave.com/graceful-interruptible: "true"',
            id="a rename that would contradict another label",
        ),
        pytest.param(
            '        qos.coreweave.cloud/interruptable: "true"\n        qos.coreweave.com/graceful-interruptible: "true"',
            id="two labels of which either may be meant",
        ),
    ],
)
@pytest.mark.parametrize("kind", ["Deployment"])
def test_what_may_be_meant_in_two_ways_is_left_to_people(
    run: Run, write: Callable[[str, str | bytes], Path], labels: str, kind: str
) -> None:
    write("policies.yaml", EVICTION)
    write("web.yaml", (DEPLOYMENT % labels).replace("Deployment", kind))
    found = results(run, "--policies", "policies.yaml", "web.yaml")
    assert found
    assert not offered(found)


def test_a_label_is_not_mended_where_that_would_lose_work(run: Run, write: Callable[[str, str | bytes], Path]) -> None:
    write("policies.yaml", EVICTION)
    write("db.yaml", (DEPLOYMENT % '        interruptable: "true"').replace("Deployment", "StatefulSet"))
    found = results(run, "--policies", "policies.yaml", "db.yaml")
    assert found
    assert not offered(found)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            (DEPLOYMENT % "        foo.coreweave.cloud/bar: x").replace("{app: web}", "{foo.coreweave.cloud/bar: x}"),
            id="a selector names the label",
        ),
        pytest.param(
            "base: &labels {foo.coreweave.cloud/bar: x}\napiVersion: v1\nkind: Pod\n"
            "metadata: {name: web, labels: *labels}\n",
            id="it is an alias",
        ),
        pytest.param(DEPLOYMENT % "        team.coreweave.cloud/job: x", id="it only resembles a label"),
        pytest.param(
            DEPLOYMENT % '        qos.coreweave.cloud/interruptible: "true"\n'
            '        qos.coreweave.cloud/interruptable: "maybe"',
            id="the right label is there, and says something else",
        ),
        pytest.param(POOL % "  image: {releaseTrain: edge}", id="no word resembles it"),
        pytest.param(POOL % '  minNodes: "01"', id="a number that may be octal"),
    ],
)
def test_what_can_not_be_mended_for_certain_has_no_fix(
    run: Run, write: Callable[[str, str | bytes], Path], text: str
) -> None:
    write("thing.yaml", text)
    found = results(run, "thing.yaml")
    assert found
    assert not offered(found)


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param('"annotations": {"\x7f": "\x9f"}', id="JSON that is no YAML"),
        pytest.param(
            '"annotations": {"C:\\\\uda": "\\ud83d\\ude00", "a": "\u2028\\n"}', id="surrogates, and ends of lines"
        ),
    ],
)
def test_a_fix_of_odd_json_does_what_it_says(run: Run, write: Callable[[str, str | bytes], Path], odd: str) -> None:
    file = write("pod.json", POD % f'{odd},\n "labels": {{"foo.coreweave.cloud/bar": "x", "a": "b"}}')
    (fix,) = offered(results(run, "pod.json"))
    assert applied(fix) == 'remove metadata.labels["foo.coreweave.cloud/bar"]'
    assert file.read_text() == POD % f'{odd},\n "labels": {{"a": "b"}}'


def test_what_looks_like_an_escaped_surrogate_keeps_nothing_from_its_fix(
    run: Run, write: Callable[[str, str | bytes], Path]
) -> None:
    deployment = DEPLOYMENT.replace("example.com/web}", "example.com/web, args: ['C:\\udev', \"x\"]}")
    file = write("web.yaml", deployment % "        foo.coreweave.cloud/bar: x")
    (fix,) = offered(results(run, "web.yaml"))
    applied(fix)
    assert file.read_text() == deployment.replace("%s\n", "")


def test_what_is_in_no_file_has_no_fix(run: Run) -> None:
    text = (DEPLOYMENT % "        foo.coreweave.cloud/bar: x").encode()
    (ran,) = run("check", "-o", "sarif", "-", stdin=text).json["runs"]
    assert known(ran["results"])
    assert not offered(ran["results"])


def test_of_two_misspellings_of_one_label_one_is_renamed(run: Run, write: Callable[[str, str | bytes], Path]) -> None:
    labels = [f'        qos.coreweave.com/{name}: "true"' for name in ("interruptable", "interruptible")]
    path = write("web.yaml", DEPLOYMENT % "\n".join(labels))
    for _ in labels:
        (fix,) = offered(results(run, "web.yaml"))
        applied(fix)
    assert path.read_text() == DEPLOYMENT % '        qos.coreweave.cloud/interruptable: "true"'


def test_other_formats_say_nothing_of_fixes(run: Run, write: Callable[[str, str | bytes], Path]) -> None:
    write("web.yaml", DEPLOYMENT % "        foo.coreweave.cloud/bar: x")
    done = run("check", "-o", "json", "-o", "sarif=out.sarif", "web.yaml")
    (result,) = done.json["results"]
    assert "remedy" not in result
    assert "fixes" in json.loads(Path("out.sarif").read_text())["runs"][0]["results"][0]
