"""Policy files that were found valid are not validated again, and nobody can tell but by the time it takes."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from webhook.bundle import SHIPPED, load_bundle
from webhook.cli import main
from webhook.policy import recall
from webhook.policy.document import policy_files
from webhook.policy.errors import PolicyErrors
from webhook.policy.recall import Recall, cache_folder

EXAMPLES = Path(__file__).parents[2] / "examples" / "policies"

POLICY = """\
apiVersion: spotgate.dev/v1
kind: ReservedLabels
metadata: {name: ours}
spec:
  domains: [example.com]
  exempt:
    - {users: [jane], reason: she has to, expires: 2027-01-31}
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: a, labels: {example.com/a: b}}
spec: {containers: [{name: a, image: b}]}
"""


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that everything is kept in."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("SPOTGATE_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    return file


def check(policy: Path, capfd: pytest.CaptureFixture[str]) -> tuple[int, str]:
    pod = policy.with_name("pod.yaml")
    pod.write_text(POD)
    code = main(["check", "--policies", str(policy), str(pod)])
    said = capfd.readouterr()
    return code, said.out + said.err


def imports(policy: Path, pod: Path) -> set[str]:
    """The packages that a command has imported at its end."""
    program = (
        "import sys; from webhook.cli import main; "
        "main(sys.argv[1:]); print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    command = [sys.executable, "-c", program, "check", "--policies", str(policy), str(pod)]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stderr.split())


@pytest.mark.usefixtures("kept")
def test_what_was_validated_once_needs_no_models_any_more(policy: Path) -> None:
    pod = policy.with_name("pod.yaml")
    pod.write_text(POD)
    assert "pydantic" in imports(policy, pod)
    assert "pydantic" not in imports(policy, pod)


@pytest.mark.parametrize("policies", [SHIPPED, EXAMPLES], ids=["shipped", "examples"])
def test_all_documents_come_back_as_they_were(kept: Path, policies: Path) -> None:
    fresh, again = (load_bundle([policies], recalled_in=kept) for _ in range(2))

    assert again.hash == fresh.hash
    assert [(each.kind, each.name, each.document) for each in again.documents] == [
        (each.kind, each.name, each.document) for each in fresh.documents
    ]
    for before, after in zip(fresh.documents, again.documents, strict=True):
        assert fields(after.spec) == fields(before.spec)
        assert type(after.spec) is recall.Recalled


def fields(value: object) -> object:
    """A model and what stands for it, as plain data."""
    if isinstance(value, dict):
        return {key: fields(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return type(value), [fields(each) for each in value]
    return fields(vars(value)) if hasattr(value, "__dict__") and not isinstance(value, str) else value


def test_another_byte_in_a_policy_is_another_policy(
    kept: Path, policy: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert [check(policy, capfd)[0] for _ in range(2)] == [1, 1]
    policy.write_text(POLICY.replace("example.com", "example.org"))
    assert [check(policy, capfd)[0] for _ in range(2)] == [0, 0]
    assert len(list(kept.iterdir())) == 2


def test_another_state_of_the_program_validates_anew(kept: Path, policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_bundle([policy], recalled_in=kept)
    assert Recall(kept, [policy]).documents() is None  # the shipped facts belong to the set
    files = [*policy_files([SHIPPED / "providers", SHIPPED / "workloads.yaml"]), policy]
    assert Recall(kept, files).documents() is not None
    monkeypatch.setattr(recall, "_code", lambda: [("webhook/new.py", 1, 1)])
    assert Recall(kept, files).documents() is None


def test_policies_with_mistakes_are_not_kept(kept: Path, policy: Path) -> None:
    policy.write_text(POLICY.replace("domains", "domain"))
    for _ in range(2):
        with pytest.raises(PolicyErrors, match="did you mean `domains`"):
            load_bundle([policy], recalled_in=kept)
    assert not kept.exists()


def test_files_that_change_while_they_are_read_are_not_kept(kept: Path, policy: Path) -> None:
    seen = Recall(kept, [policy])
    policy.write_text(POLICY.replace("jane", "joan"))
    seen.keep([])
    assert not kept.exists()


@pytest.mark.parametrize("damage", [b"", b"\x80", b"\x80\x05X\xff\xff\xff\xff", b"text"])
def test_what_is_damaged_counts_as_not_there(
    kept: Path, policy: Path, damage: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    first = check(policy, capfd)
    (file,) = kept.iterdir()
    file.write_bytes(damage)
    assert check(policy, capfd) == first
    assert file.read_bytes() != damage


def test_what_is_kept_can_make_nothing_else_and_run_nothing(
    kept: Path, policy: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "made"),)

    first = check(policy, capfd)
    (file,) = kept.iterdir()
    file.write_bytes(pickle.dumps([Evil()]))
    assert check(policy, capfd) == first
    assert not (tmp_path / "made").exists()


def test_where_nothing_can_be_kept_everything_works(
    kept: Path, policy: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kept.write_text("a file where the folder would be")
    assert [check(policy, capfd)[0] for _ in range(2)] == [1, 1]
    assert kept.read_text() == "a file where the folder would be"


def test_the_folder_is_for_its_owner_alone_and_keeps_the_latest_sets(kept: Path, policy: Path) -> None:
    for number in range(20):
        policy.write_text(POLICY.replace("jane", f"user-{number}"))
        load_bundle([policy], recalled_in=kept)
    assert kept.stat().st_mode & 0o777 == 0o700
    assert len(list(kept.iterdir())) == 16


def test_it_is_kept_where_the_user_keeps_such_things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPOTGATE_CACHE_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == tmp_path / ".cache" / "spotgate"
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/jane")
    assert str(cache_folder()) == "/var/cache/jane/spotgate"
    monkeypatch.setenv("SPOTGATE_CACHE_DIR", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.setenv("SPOTGATE_CACHE_DIR", "")
    assert cache_folder() is None
