"""Policies and state are reloaded while serving; invalid ones leave those in force."""

from __future__ import annotations

import os
import shutil
import threading
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.server.harness import LOOPBACK, SHORT, Known, bundle_of, eventually, labelled, put, write_policy
from webhook.policy.errors import PolicyErrors
from webhook.runtime.reload import Reloader
from webhook.runtime.snapshot import Snapshot
from webhook.server.serve import ServeOptions, build_snapshot, serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.server.conftest import Start
    from tests.server.harness import Served
    from webhook.model.decision import Violation
    from webhook.rules.context import Context
    from webhook.rules.subject import Subject


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    folder = tmp_path / "policies"
    write_policy(folder)
    return folder


def reloader_of(policies: Path, *state: Path) -> Reloader:
    options = ServeOptions(listen=LOOPBACK, ops=LOOPBACK, policies=(policies,), state=state, limits=SHORT)
    return Reloader(partial(build_snapshot, options), (policies, *state))


def denies(served: Served, domain: str) -> bool:
    return not served.post(labelled(domain)).allowed


def test_P1_a_changed_policy_is_loaded(start: Start, policies: Path) -> None:
    served = start(reloader=reloader_of(policies))
    before = served.ops("/version").json["bundle"]
    assert denies(served, "reserved.example.com")
    assert not denies(served, "other.example.com")
    write_policy(policies, "other.example.com")
    eventually(lambda: denies(served, "other.example.com"))
    assert not denies(served, "reserved.example.com")
    after = served.ops("/version").json["bundle"]
    assert after != before
    assert served.metric("spotgate_bundle_info", hash=after) == 1
    assert served.metric("spotgate_bundle_info") == 1
    assert served.metric("spotgate_last_reload_success", what="policies") == 1


def test_P1_a_new_file_is_loaded(start: Start, policies: Path) -> None:
    served = start(reloader=reloader_of(policies))
    text = (policies / "policy.yaml").read_text()
    (policies / "more").mkdir()
    put(
        policies / "more" / "policy.yaml",
        text.replace("reserved", "second").replace("second.example.com", "other.example.com"),
    )
    eventually(lambda: denies(served, "other.example.com"))
    assert denies(served, "reserved.example.com")


BAD = {
    "malformed YAML": "kind: [",
    "an unknown field": "apiVersion: spotgate.dev/v1\nkind: ReservedLabels\nmetadata: {name: x}\nspec: {domain: x.com}\n",
    "nothing": "",
}


def second_policy(policies: Path) -> str:
    text = (policies / "policy.yaml").read_text()
    return text.replace("name: reserved", "name: second").replace("reserved.example.com", "second.example.com")


@pytest.mark.parametrize("text", ["", "# domains: [second.example.com]\n", "---\n---\n"])
def test_S12_an_emptied_file_is_rejected(start: Start, policies: Path, text: str) -> None:
    put(policies / "second.yaml", second_policy(policies))
    served = start(reloader=reloader_of(policies))
    loaded = served.metric("spotgate_last_reload_timestamp_seconds", what="policies")
    put(policies / "second.yaml", text)
    eventually(lambda: served.metric("spotgate_last_reload_success", what="policies") == 0)
    assert served.metric("spotgate_last_reload_timestamp_seconds", what="policies") == loaded
    assert denies(served, "second.example.com")
    (line,) = served.log("policies not loaded")
    assert f"{policies}/second.yaml: contains no policy; if that is intended, remove the file" in line["problems"]


def test_S12_an_emptied_folder_is_rejected(start: Start, policies: Path, tmp_path: Path) -> None:
    more = tmp_path / "more"
    more.mkdir()
    put(more / "second.yaml", second_policy(policies))
    options = ServeOptions(listen=LOOPBACK, ops=LOOPBACK, policies=(policies, more), limits=SHORT)
    served = start(reloader=Reloader(partial(build_snapshot, options), options.policies))
    (more / "second.yaml").unlink()
    eventually(lambda: served.metric("spotgate_last_reload_success", what="policies") == 0)
    assert denies(served, "second.example.com")
    (line,) = served.log("policies not loaded")
    assert f"{more}: contains no policy" in line["problems"][0]


def test_S12_a_policy_removed_with_its_file_is_logged(start: Start, policies: Path) -> None:
    put(policies / "second.yaml", second_policy(policies))
    served = start(reloader=reloader_of(policies))
    assert served.metric("spotgate_policies", enforcement="deny") == 2
    assert served.metric("spotgate_policies_removed_total") == 0
    (policies / "second.yaml").unlink()
    eventually(lambda: served.metric("spotgate_policies_removed_total") == 1)
    assert served.metric("spotgate_policies", enforcement="deny") == 1
    assert served.metric("spotgate_last_reload_success", what="policies") == 1
    assert not denies(served, "second.example.com")
    assert [line["policies"] for line in served.log("policies removed")] == [["ReservedLabels second"]]


@pytest.mark.parametrize("name", BAD)
def test_P1_bad_policies_keep_the_last_good_ones(start: Start, policies: Path, name: str) -> None:
    served = start(reloader=reloader_of(policies))
    before = served.ops("/version").json
    put(policies / "policy.yaml", BAD[name])
    eventually(lambda: served.metric("spotgate_last_reload_success", what="policies") == 0)
    assert denies(served, "reserved.example.com")
    assert served.ops("/version").json == before
    assert served.ops("/healthz").status == 200
    assert served.ops("/readyz").status == 200
    (line,) = served.log("policies not loaded")
    assert str(policies) in line["problems"][0]

    write_policy(policies, "other.example.com")
    eventually(lambda: denies(served, "other.example.com"))
    assert served.metric("spotgate_last_reload_success", what="policies") == 1


def test_P1_policies_of_a_deleted_folder_stay_until_it_is_recreated(start: Start, policies: Path) -> None:
    served = start(reloader=reloader_of(policies))
    shutil.rmtree(policies)
    eventually(lambda: served.metric("spotgate_last_reload_success", what="policies") == 0)
    assert denies(served, "reserved.example.com")
    write_policy(policies, "other.example.com")
    eventually(lambda: denies(served, "other.example.com"))


def test_P1_a_dangling_link_keeps_the_last_good_ones_until_it_is_removed(start: Start, policies: Path) -> None:
    served = start(reloader=reloader_of(policies))
    (policies / "gone.yaml").symlink_to("nowhere.yaml")
    eventually(lambda: served.metric("spotgate_last_reload_success", what="policies") == 0)
    assert denies(served, "reserved.example.com")
    (policies / "gone.yaml").unlink()
    eventually(lambda: served.metric("spotgate_last_reload_success", what="policies") == 1)


def link_to_a_folder(path: Path) -> None:
    path.symlink_to("..")  # a loop


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, link_to_a_folder])
def test_P1_a_non_file_in_place_of_a_policy_keeps_the_last_good_ones(
    start: Start, policies: Path, make: Callable[[Path], None]
) -> None:
    put(policies / "second.yaml", second_policy(policies))
    served = start(reloader=reloader_of(policies))
    (policies / "second.yaml").unlink()  # before the next check: changes are read once two checks agree
    make(policies / "second.yaml")
    eventually(lambda: served.metric("spotgate_last_reload_success", what="policies") == 0)
    assert denies(served, "second.example.com")
    (line,) = served.log("policies not loaded")
    assert f"{policies}/second.yaml: has the name of a policy file, but isn't a regular file" in line["problems"][0]
    (policies / "second.yaml").rename(policies / "put-aside")
    eventually(lambda: served.metric("spotgate_policies_removed_total") == 1)
    assert served.metric("spotgate_last_reload_success", what="policies") == 1


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_a_non_file_with_a_policy_file_name_prevents_the_start(
    policies: Path, make: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    (policies / "team").mkdir()
    make(policies / "team" / "more.yml")
    assert serve(ServeOptions(listen=LOOPBACK, ops=LOOPBACK, policies=(policies,), self_signed=True)) == 2
    assert f"{policies}/team/more.yml: has the name of a policy file, but" in capsys.readouterr().err


def mount(volume: Path, revision: str, domain: str) -> None:
    """Write a policy to a volume as the kubelet does: create a directory, then point `..data` at it."""
    write_policy(volume / f"..{revision}", domain)
    link = volume / "..data_tmp"
    link.symlink_to(f"..{revision}")
    link.rename(volume / "..data")
    if not (volume / "policy.yaml").is_symlink():
        (volume / "policy.yaml").symlink_to("..data/policy.yaml")


def test_P1_an_updated_ConfigMap_volume_is_loaded(start: Start, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    mount(volume, "1", "reserved.example.com")
    served = start(reloader=reloader_of(volume))
    for revision, domain in (("2", "second.example.com"), ("3", "third.example.com")):
        mount(volume, revision, domain)
        eventually(partial(denies, served, domain))
        shutil.rmtree(volume / f"..{int(revision) - 1}")
    assert not denies(served, "second.example.com")


def test_P1_a_folder_that_vanishes_during_a_scan_is_no_crash(
    start: Start, policies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scandir, going = os.scandir, policies / "going"

    def vanishing(path: Any) -> Any:
        if str(path) == str(going):
            going.rmdir()
        return scandir(path)

    monkeypatch.setattr(os, "scandir", vanishing)
    served = start(reloader=reloader_of(policies))
    for number in range(3):
        going.mkdir()
        write_policy(policies, f"d{number}.example.com")
        eventually(partial(denies, served, f"d{number}.example.com"))
        eventually(lambda: not going.exists())


def test_P1_a_symlinked_folder_is_followed_to_its_current_target(start: Start, tmp_path: Path) -> None:
    link = tmp_path / "current"
    write_policy(tmp_path / "rev-1")
    link.symlink_to("rev-1")
    served = start(reloader=reloader_of(link))
    write_policy(tmp_path / "rev-2", "other.example.com")
    (tmp_path / "next").symlink_to("rev-2")
    (tmp_path / "next").rename(link)
    eventually(lambda: denies(served, "other.example.com"))


def test_P2_no_request_fails_during_a_reload(start: Start, policies: Path) -> None:
    served = start(reloader=reloader_of(policies))
    done = threading.Event()
    statuses: list[int] = []

    def load() -> None:
        with closing(served.connection()) as connection:
            while not done.is_set():
                statuses.append(served.post(labelled(), over=connection).status)

    clients = [threading.Thread(target=load) for _ in range(3)]
    for client in clients:
        client.start()
    for number in range(4):
        domain = f"d{number}.example.com"
        write_policy(policies, domain)
        eventually(partial(denies, served, domain))
    done.set()
    for client in clients:
        client.join()
    assert set(statuses) == {200}


def test_P1_a_bundle_that_fails_its_self_test_is_not_loaded(start: Start, tmp_path: Path) -> None:
    def fail(_: Subject, __: Context) -> Iterable[Violation]:
        raise ValueError("the-secret")

    bundles = [bundle_of(name="good"), bundle_of(fail, name="bad"), bundle_of(name="better")]
    (tmp_path / "file").write_text("0")
    served = start(reloader=Reloader(lambda: Snapshot(bundles.pop(0), Known()), (tmp_path,)))
    put(tmp_path / "file", "1!")
    eventually(lambda: served.metric("spotgate_last_reload_success", what="policies") == 0)
    assert served.ops("/version").json["bundle"] == "good"
    (problem,) = set(served.log("policies not loaded")[0]["problems"])
    assert "policy bad couldn't evaluate the object" in problem
    assert "ValueError at " in problem
    assert "the-secret" not in served.text_of_log()
    put(tmp_path / "file", "2!!")
    eventually(lambda: served.ops("/version").json["bundle"] == "better")


def test_valid_cluster_state_is_loaded_and_invalid_state_is_not(start: Start, policies: Path, tmp_path: Path) -> None:
    state = tmp_path / "cluster.yaml"
    text = "apiVersion: v1\nkind: Namespace\nmetadata: {{name: team-a, labels: {{tier: {}}}}}\n"
    state.write_text(text.format("one"))
    served = start(reloader=reloader_of(policies, state))

    def tier() -> str:
        return served.replica.webhook.snapshot.state.view().namespaces["team-a"]["tier"]

    assert tier() == "one"
    put(state, text.format("second"))
    eventually(lambda: tier() == "second")
    put(state, "kind: [")
    eventually(lambda: served.metric("spotgate_last_reload_success", what="policies") == 0)
    assert tier() == "second"
    assert "cluster.yaml" in served.log("policies not loaded")[0]["problems"][0]


def test_I23_an_empty_folder_prevents_the_start(tmp_path: Path) -> None:
    with pytest.raises(PolicyErrors, match="contains no policy"):
        reloader_of(tmp_path)


def test_an_expiring_exemption_is_a_metric_and_an_expired_one_a_warning(start: Start, policies: Path) -> None:
    served = start(reloader=reloader_of(policies))
    exemption = """\
apiVersion: spotgate.dev/v1
kind: Exemption
metadata: {name: team-a}
spec: {policies: [reserved], groups: ["*"], reason: a while ago, expires: 2020-02-01}
"""
    put(policies / "exemption.yaml", exemption)
    ended = "spotgate_exemption_expiry_timestamp_seconds"
    midnight = 1580601600  # 2020-02-02T00:00Z
    eventually(lambda: served.metric(ended, policy="reserved", exemption="Exemption team-a") == midnight)
    assert denies(served, "reserved.example.com")
    (line,) = served.log("policies without effect, or with exemptions that end")
    assert "exemption.yaml:4:66: spec.expires: warning: the exemption ended on 2020-02-01" in line["problems"][0]

    (policies / "exemption.yaml").unlink()
    eventually(lambda: served.metric(ended) == 0)
    assert served.metric("spotgate_last_reload_success", what="policies") == 1
