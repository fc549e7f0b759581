"""The sources of the control plane programs of a rehearsal."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from webhook.base.exits import CannotJudgeError
from webhook.rehearse.controlplane import images
from webhook.rehearse.controlplane.binaries import PLATFORM, BinariesError
from webhook.rehearse.runs import programs
from webhook.rehearse.runs.programs import NEEDED, find_programs, prepare

KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
SCRIPTED = """#!/bin/sh
case $1 in
  create) echo "$2" >> {calls}; echo a-container ;;
  cp) printf '{program}' > "$3"; chmod +x "$3" ;;
  rm) echo "rm $2" >> {calls} ;;
esac
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache on a machine without Go and without bundled programs."""
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def no_go() -> str:
        raise BinariesError("there is no Go")

    monkeypatch.setattr(programs, "find_go", no_go)
    return tmp_path / "cache" / "spotgate" / "controlplane"


def write(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script)
    path.chmod(0o755)


def fill(folder: Path, *names: str, version: str = "v1.37.2") -> None:
    for name in names:
        write(folder / name, f"#!/bin/sh\necho Kubernetes {version}\n")


@pytest.mark.parametrize(
    ("cluster", "version"),
    [
        (None, "1.37.2"),
        ("v1.35.9-gke.100", "1.35.10"),  # the newest patch of the same minor version
        ("v1.34.1", "1.37.2"),  # missing, so the bundled version is used
        ("v1.33.1", "1.37.2"),
        ("v1.37.0", "1.37.2"),
        ("unknown", "1.37.2"),
    ],
)
def test_the_minor_version_of_the_cluster_is_preferred(cache: Path, cluster: str | None, version: str) -> None:
    fill(cache / f"etcd-v3.7.9-{PLATFORM}-0123", "etcd")
    fill(cache / f"kwok-v0.8.0-{PLATFORM}-image", "kwok")
    for release in ("v1.33.1", "v1.35.9", "v1.35.10", "v1.37.2"):
        fill(cache / f"kubernetes-{release}-{PLATFORM}-0123", *KUBERNETES, version=release)
    programs = find_programs(None, cluster)
    assert programs.version == version
    assert programs.paths.keys() == NEEDED


def test_the_users_programs_report_their_version(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "bin", *NEEDED, version="v1.35.1-acme")
    programs = find_programs(tmp_path / "bin", "v1.34.1")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "bin"))
    assets = find_programs(None, "v1.34.1")
    assert (programs.version, assets.version) == ("1.35.1-acme", "1.35.1-acme")
    (tmp_path / "bin" / "kube-scheduler").write_text("\x7fELF")
    with pytest.raises(CannotJudgeError, match=r"kube-scheduler --version` prints no version: .*Exec format error"):
        find_programs(tmp_path / "bin", None)
    assert not cache.exists()


def test_without_go_and_containers_the_error_says_why(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(CannotJudgeError) as raised:
        find_programs(None, None)
    assert capsys.readouterr().err.splitlines() == [
        "spotgate: there are no programs of a control plane yet; `spotgate rehearse --prepare` gets them beforehand"
    ]
    *why, way_out = str(raised.value).splitlines()
    assert why == [
        "spotgate rehearse: there is no Go",
        "the programs can't be copied from container images: install one of docker, podman, nerdctl",
    ]
    assert way_out.endswith(
        "run `spotgate rehearse --prepare`, or name their folder with --binaries or KUBEBUILDER_ASSETS"
    )
    assert not cache.exists()


@pytest.mark.usefixtures("cache")
def test_without_the_version_of_a_cluster_a_rehearsal_builds_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "find_go", lambda: "go")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    for engine in ("docker", "podman", "nerdctl"):
        write(tmp_path / "bin" / engine, "#!/bin/sh\nexit 1\n")
    program = "#!/bin/sh\\necho Kubernetes v1.37.2\\n"
    script = f"""while [ "$1" != -o ]; do shift; done; printf '{program}' > "$2"; chmod +x "$2"\n"""
    write(tmp_path / "bin" / "go", f"#!/bin/sh\n{script}")
    assert find_programs(None, "v1.34.4").version == "1.37.2"
    with pytest.raises(CannotJudgeError, match=r"v1\.34\.4 comes from container images"):
        prepare("v1.34.4")


@pytest.mark.skipif(sys.platform != "linux", reason="images have programs for Linux")
@pytest.mark.parametrize("engine", ["scripted", "podman"])
def test_without_go_programs_are_copied_from_images(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    monkeypatch.setattr(images, "ENGINES", ("absent", "podman"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    if engine == "scripted":
        script = SCRIPTED.format(calls=tmp_path / "calls", program="#!/bin/sh\\necho Kubernetes v1.35.2\\n")
        write(tmp_path / "bin" / "podman", script)
    else:
        import_images(tmp_path, monkeypatch)
    programs = prepare("v1.35.2-eks-1a2b3c")
    assert programs.version == "1.35.2"
    folders = {
        f"{name}-{PLATFORM}-image" for name in (f"etcd-v{images.ETCD_TAG[:-2]}", "kwok-v0.8.0", "kubernetes-v1.35.2")
    }
    assert {folder.name for folder in cache.iterdir()} == {"lock", *folders}
    if engine == "scripted":
        created = [call for call in (tmp_path / "calls").read_text().splitlines() if call != "rm a-container"]
        assert created[0] == f"registry.k8s.io/etcd@{images.DIGESTS[f'etcd:{images.ETCD_TAG}']}"
        assert created[2:] == [f"registry.k8s.io/{name}:v1.35.2" for name in KUBERNETES]
    assert prepare("v1.35.7").version == "1.35.2"  # from the cache


def import_images(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Import images of these names into a private podman store, without a registry."""
    podman = shutil.which("podman")
    if podman is None:
        pytest.skip("there is no podman")
    config = folder / "storage.conf"
    config.write_text(f'[storage]\ndriver="vfs"\ngraphroot="{folder}/store"\nrunroot="{folder}/run"\n')
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(config))
    monkeypatch.setattr(images, "DIGESTS", {})
    for name, reference in (pair for listed in images.folders_of("v1.35.2").values() for pair in listed.items()):
        archive = folder / "image.tar"
        with tarfile.open(archive, "w") as tar:
            member = tarfile.TarInfo(f"usr/local/bin/{name}")
            program = b"#!/bin/sh\necho Kubernetes v1.35.2\n"
            member.size, member.mode = len(program), 0o755
            tar.addfile(member, io.BytesIO(program))
        subprocess.run([podman, "import", "--quiet", str(archive), reference], check=True, capture_output=True)


def test_an_interrupted_build_leaves_no_partial_files(cache: Path, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    write(tmp_path / "bin" / "go", f"#!/bin/sh\ntouch {begun}\nexec sleep 60\n")
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n", "labels": {"compute.coreweave.com/node-pool": "p"}},
    }
    (tmp_path / "node.json").write_text(json.dumps({**node, "status": {"allocatable": {"cpu": "1"}}}))
    with subprocess.Popen(
        [str(Path(sys.executable).with_name("spotgate")), "rehearse", "--lose=p", str(tmp_path / "node.json")],
        env=os.environ | {"PATH": f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}"},
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        deadline = time.monotonic() + 60
        while not begun.exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        program.send_signal(signal.SIGTERM)
        _, output = program.communicate(timeout=30)
    assert program.returncode == 130
    assert "8 to 15 minutes on two cores, once" in output
    assert not [path for path in cache.rglob("*") if path.is_file() and path.name != "lock"]
