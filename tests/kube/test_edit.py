"""Edits of a Pod: an independent JSONPatch implementation turns the JSON into the typed Pod."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import jsonpatch
import msgspec
import pytest

from webhook.kube.containers import containers
from webhook.kube.edit import PodEditor, exec_sleep, native_sleep
from webhook.kube.pod import Pod, Requirement, Toleration
from webhook.kube.pod_decoding import decode_pod
from webhook.rules.reclaim_notice.rule import NOTICE_MOUNT, NOTICE_VOLUME

if TYPE_CHECKING:
    from collections.abc import Callable

SPOT = Toleration(key="spot", operator="Equal", value="true", effect="NoSchedule")
IN_POOL = Requirement(key="pool", operator="In", values=("a", "b"))
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

EDITS: dict[str, Callable[[PodEditor], None]] = {
    "toleration": lambda editor: editor.add_toleration(SPOT),
    "selector": lambda editor: editor.add_node_selector("example.com/pool~x", "spot"),
    "label": lambda editor: editor.add_label("example.com/team~x", "ml"),
    "volume": lambda editor: editor.add_volume(NOTICE_VOLUME),
    "mount": lambda editor: editor.add_mount(list(containers(editor.pod))[1], NOTICE_MOUNT),
    "require": lambda editor: editor.require([IN_POOL]),
    "prefer": lambda editor: editor.prefer(100, IN_POOL),
    "grace": lambda editor: editor.set_grace(270),
    "native sleep": lambda editor: editor.set_pre_stop(0, native_sleep(5)),
    "exec sleep": lambda editor: editor.set_pre_stop(1, exec_sleep(5)),
}

PODS: dict[str, dict[str, Any]] = {
    "bare": {"metadata": {}, "spec": {"containers": [{"name": "a"}, {"name": "b"}]}},
    "nulls": {
        "metadata": {"labels": None},
        "spec": {
            "volumes": None,
            "containers": [{"name": "a", "lifecycle": None}, {"name": "b", "volumeMounts": None}],
            "tolerations": None,
            "nodeSelector": None,
            "affinity": None,
        },
    },
    "full": {
        "metadata": {"labels": {"app": "web"}},
        "spec": {
            "volumes": [{"name": "data", "emptyDir": {}}],
            "containers": [
                {"name": "a", "lifecycle": {"postStart": {"sleep": {"seconds": 1}}}},
                {"name": "b", "lifecycle": {}, "volumeMounts": [{"name": "data", "mountPath": "/data"}]},
            ],
            "tolerations": [{"operator": "Exists"}],
            "nodeSelector": {"disk": "ssd"},
            "terminationGracePeriodSeconds": 30,
            "affinity": {
                "podAntiAffinity": {},
                "nodeAffinity": {
                    REQUIRED: {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "zone", "operator": "Exists"}]},
                            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
                            {},
                        ]
                    },
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}
                    ],
                },
            },
        },
    },
}


def read(value: dict[str, Any]) -> Pod:
    return decode_pod(msgspec.json.encode(value))


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_the_patched_json_is_the_edited_pod(pod: dict[str, Any], edit: Callable[[PodEditor], None]) -> None:
    editor = PodEditor(read(pod))
    edit(editor)
    edit_again = PodEditor(editor.pod)
    patched = jsonpatch.apply_patch(copy.deepcopy(pod), [operation.as_json() for operation in editor.operations])
    assert read(patched) == edit_again.pod
    assert editor.operations


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
def test_all_edits_together_apply_in_order(pod: dict[str, Any]) -> None:
    editor = PodEditor(read(pod))
    for edit in EDITS.values():
        edit(editor)
    patched = jsonpatch.apply_patch(copy.deepcopy(pod), [operation.as_json() for operation in editor.operations])
    assert read(patched) == editor.pod


def test_an_empty_affinity_term_still_matches_no_node() -> None:
    editor = PodEditor(read(PODS["full"]))
    editor.require([IN_POOL])
    paths = [operation.path for operation in editor.operations]
    base = f"/spec/affinity/nodeAffinity/{REQUIRED}/nodeSelectorTerms"
    assert paths == [f"{base}/0/matchExpressions/-", f"{base}/1/matchExpressions"]


def test_a_patch_carries_its_policy() -> None:
    editor = PodEditor(read(PODS["bare"]))
    editor.policy = "placement"
    editor.add_node_selector("a/b~c", "d")
    (operation,) = editor.operations
    assert operation.path == "/spec/nodeSelector"
    assert operation.policy == "placement"


def test_slashes_and_tildes_in_keys_are_escaped() -> None:
    editor = PodEditor(read(PODS["full"]))
    editor.add_node_selector("a/b~c", "d")
    assert editor.operations[0].path == "/spec/nodeSelector/a~1b~0c"
