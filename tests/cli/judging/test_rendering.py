"""Output of the real renderers is evaluated, and their errors are shown."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import ON_DEMAND_POOL, POD, SPOT_POOL

if TYPE_CHECKING:
    from tests.cli.conftest import Check, Done, Run, Write


CHART = "apiVersion: v2\nname: {}\nversion: 1.0.0\n"
TEMPLATE = POD.replace("name: web", "name: {{ .Release.Name }}-{{ .Values.suffix }}")


@pytest.fixture
def overlay(write: Write, kustomize: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return an overlay with a name prefix over a base; only kustomize is in PATH."""
    monkeypatch.setenv("PATH", str(kustomize.parent))
    write("base/kustomization.yaml", "resources: [pod.yaml, pool.yaml]\n")
    write("base/pod.yaml", POD)
    write("base/pool.yaml", SPOT_POOL)
    write("overlays/prod/kustomization.yaml", "resources: [../../base]\nnamePrefix: prod-\n")
    return "overlays/prod"


@pytest.fixture
def chart(write: Write, helm: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Return a chart with a subchart whose name differs from its folder."""
    monkeypatch.setenv("PATH", str(helm.parent))
    monkeypatch.setenv("HELM_CACHE_HOME", str(tmp_path / "helm"))
    write("charts/web/Chart.yaml", CHART.format("site"))
    write("charts/web/values.yaml", "suffix: web\n")
    second = TEMPLATE.replace(".Values.suffix }}", ".Values.suffix }}-2")
    write("charts/web/templates/pods.yaml", f"---\n{TEMPLATE}---\n{second}")
    write("charts/web/templates/empty.yaml", "{{ if false }}a{{ end }}\n")
    write("charts/web/crds/crd.yaml", "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: x}\n")  # fmt: skip
    write("charts/web/charts/part/Chart.yaml", CHART.format("part"))
    write("charts/web/charts/part/templates/pool.yaml", SPOT_POOL)
    return "charts/web"


def places(done: Done) -> list[tuple[str, int, str, str]]:
    return [(result["file"], result["line"], result["kind"], result["name"]) for result in done.json["results"]]


def test_kustomize_output_is_judged_and_located_in_its_source(check: Check, overlay: str) -> None:
    done = check("--kustomize", overlay)
    assert (done.code, done.err) == (1, "")
    assert sorted(places(done)) == [
        ("base/pod.yaml", 6, "Pod", "prod-web"),
        ("base/pool.yaml", 6, "NodePool", "prod-gpu-spot"),
    ]
    assert "In the output of `kustomize build overlays/prod`." in done.json["results"][0]["detail"]


@pytest.mark.parametrize("flags", [(), ("--no-render",)])
def test_the_inputs_of_a_named_folder_are_judged_once(check: Check, overlay: str, flags: tuple[str, ...]) -> None:
    done = check(".", *flags, "--kustomize", overlay)
    assert sorted(name for *_, name in places(done)) == ["prod-gpu-spot", "prod-web"]


def test_generated_objects_are_located_in_their_kustomization(run: Run, overlay: str) -> None:
    Path(overlay, "kustomization.yaml").write_text("configMapGenerator: [{name: a}]")
    assert f"  {overlay}/kustomization.yaml:1  CREATE" in run("explain", overlay).out


def test_rendered_objects_and_files_share_one_state(check: Check, overlay: str, write: Write) -> None:
    pool = write("pool.yaml", ON_DEMAND_POOL)
    assert check("--kustomize", overlay, pool).outcomes == [("labels", "deny")]


@pytest.mark.usefixtures("overlay")
def test_kustomize_errors_are_shown_and_the_rest_is_judged(check: Check, write: Write) -> None:
    write("bad/kustomization.yaml", "resources: [nowhere.yaml]\n")
    done = check("--kustomize", "bad", "--kustomize", "base", write("good.yaml", POD.replace("web", "good")))
    assert done.code == 2
    assert done.err.startswith("bad: can't be rendered: accumulating resources: ")
    assert "nowhere.yaml" in done.err
    assert sorted(name for *_, name in places(done)) == ["good", "gpu-spot", "web"]
    assert done.json["unreadable"][0]["file"] == "bad"


@pytest.mark.parametrize("discovered", [False, True])
@pytest.mark.parametrize(
    ("kustomization", "flags"),
    [
        ("transformers: [function.yaml]", "--enable-alpha-plugins --enable-exec"),
        ("generators: [function.yaml]", "--enable-alpha-plugins --enable-exec"),
        ("helmCharts: [{name: web, repo: https://charts.invalid}]", "--enable-helm"),
    ],
)
def test_a_missing_tool_is_reported_with_how_to_run_it(
    check: Check, overlay: str, write: Write, kustomization: str, flags: str, *, discovered: bool
) -> None:
    write(f"{overlay}/kustomization.yaml", f"resources: [../../base]\n{kustomization}\n")
    function = "metadata: {name: f, annotations: {config.kubernetes.io/function: 'exec: {path: touch, args: [ran]}'}}"
    write(f"{overlay}/function.yaml", f"apiVersion: v1\nkind: ConfigMap\n{function}\n")
    done = check("overlays") if discovered else check("--kustomize", overlay)
    assert done.code == 2
    assert done.err.endswith(f"; to evaluate it: `kustomize build {flags} {overlay} | spotgate check -`\n")
    assert not list(Path().rglob("ran"))


def test_without_kustomize_kubectl_renders(check: Check, overlay: str, kustomize: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    kubectl = tmp_path / "bin" / "kubectl"
    kubectl.parent.mkdir()
    kubectl.write_text(f'#!/bin/sh\n[ "$1" = kustomize ] && exec {kustomize} build "$2"\n')
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", str(kubectl.parent))
    assert len(places(check(overlay))) == 2


@pytest.mark.parametrize("flags", [("--helm", "charts/web"), ("charts",)])
@pytest.mark.usefixtures("chart")
def test_helm_output_is_judged_and_located_in_its_template(check: Check, flags: tuple[str, ...]) -> None:
    done = check(*flags)
    assert (done.code, done.err) == (1, "")
    assert (done.json["summary"]["documents"], done.json["summary"]["skipped"]) == (4, 0)
    assert sorted(places(done)) == [
        ("charts/web/charts/part/templates/pool.yaml", 1, "NodePool", "gpu-spot"),
        ("charts/web/templates/pods.yaml", 1, "Pod", "release-name-web"),
        ("charts/web/templates/pods.yaml", 1, "Pod", "release-name-web-2"),
    ]


def test_values_and_the_kubernetes_version_reach_helm(check: Check, chart: str, write: Write) -> None:
    values = write("prod.yaml", "suffix: prod\n")
    write("charts/web/templates/pods.yaml", TEMPLATE.replace("busybox", "k:{{ .Capabilities.KubeVersion.Minor }}"))
    write("charts/web/Chart.yaml", CHART.format("site") + 'kubeVersion: "< 1.29"\n')
    done = check("--helm", chart, "--helm-values", values, "--kubernetes-version", "1.28")
    assert ("charts/web/templates/pods.yaml", 1, "Pod", "release-name-prod") in places(done)
    refused = check("--helm", chart, "--kubernetes-version", "1.30")
    assert refused.code == 2
    assert "chart requires kubeVersion: < 1.29" in refused.err


@pytest.mark.usefixtures("chart")
def test_values_of_a_chart_in_a_folder_come_from_the_project_file(check: Check, write: Write) -> None:
    write("values/prod.yaml", "suffix: prod\n")
    write(".spotgate.yaml", "chartValues: {charts/web: [values/prod.yaml]}")
    assert "release-name-prod" in [name for *_, name in places(check("charts"))]
    write(".spotgate.yaml", "chartValues: {charts/web: [/etc/hostname], nowhere: []}")
    done = check("charts")
    assert (done.code, done.out) == (2, "")
    assert 'chartValues["charts/web"][0]' in done.err.replace("chartValues.charts/web", 'chartValues["charts/web"]')
    assert "there is no 'nowhere' next to this file" in done.err


def test_helm_errors_are_shown(check: Check, chart: str, write: Write) -> None:
    write("charts/web/templates/pods.yaml", "{{ .Values.a.b.c }}")
    done = check("--helm", chart)
    assert done.code == 2
    assert done.err.startswith("charts/web: can't be rendered: ")
    assert "nil pointer evaluating" in done.err


NO_PROGRAM = {
    "some/kustomization.yaml": "neither `kustomize` nor `kubectl` is installed; to evaluate it: `kustomize build some | ",
    "some/Chart.yaml": "`helm` is not installed; to evaluate it: `helm template some | ",
}


@pytest.mark.parametrize(("file", "problem"), NO_PROGRAM.items())
def test_without_the_program_files_are_judged_and_the_exit_code_is_2(check: Check, write: Write, file: str, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setenv("PATH", "")
    write(file, "resources: [pod.yaml]")
    write("some/pod.yaml", POD)
    done = check("some")
    assert (done.code, done.outcomes) == (2, [("labels", "deny")])
    assert done.err == f"{file}: can't be rendered: {problem}spotgate check -`\n"
    ignored = check("--no-render", "some")
    assert (ignored.code, ignored.outcomes) == (1, [("labels", "deny")])
    assert ignored.err.startswith(f"warning: {file}: is not rendered, ")
    assert [warning["file"] for warning in ignored.json["warnings"]] == [file]


def test_output_that_is_not_yaml_is_an_error(check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, "echo 'a: {'")
    done = check("--kustomize", "x")
    assert (done.code, done.err.partition(":")[0]) == (2, "x")
    assert "line 2 of its output: " in done.err


def program(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put only a script named kustomize in PATH."""
    path = folder / "bin" / "kustomize"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(path.parent))


def test_explain_renders_and_fix_edits_the_sources(run: Run, overlay: str) -> None:
    assert "Pod default/prod-web  base/pod.yaml:1" in run("explain", "--kustomize", overlay).out
    assert "unrecognized arguments: --kustomize" in run("fix", "--kustomize", overlay).err
    done = run("fix", "--diff", ".")
    assert "overlays/prod/kustomization.yaml: is not rendered, and its files are evaluated as they are" in done.err
    shutil.rmtree("base")
    assert run("explain", "--kustomize", overlay).code == 2
