from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import pod_of
from webhook.kube.edit import exec_sleep, native_sleep
from webhook.kube.hooks import FOREVER, hook_sleeps, time_of, unknown_hook

if TYPE_CHECKING:
    from webhook.kube.pod import Handler


def command(*words: str) -> dict[str, Any]:
    return {"exec": {"command": list(words)}}


def script(text: str, shell: str = "/bin/sh", option: str = "-c") -> dict[str, Any]:
    return command(shell, option, text)


def handler(hook: dict[str, Any]) -> Handler:
    lifecycle = pod_of(containers=[{"name": "app", "lifecycle": {"preStop": hook}}]).spec.containers[0].lifecycle
    assert lifecycle is not None
    assert lifecycle.preStop is not None
    return lifecycle.preStop


@pytest.mark.parametrize(
    ("hook", "seconds"),
    [
        ({"sleep": {"seconds": 7}}, 7),
        (command("sleep", "15"), 15),
        (command("/bin/sleep", "15s"), 15),
        (command("sleep", "1m", "30"), 90),
        (command("busybox", "sleep", "25"), 25),
        (command("/usr/bin/env", "sleep", "25"), 25),
        (command("env", "TZ=UTC", "bash", "-ec", "sleep 25"), 25),
        (command("bash", "-e", "-o", "pipefail", "-c", "sleep 25"), 25),
        (command("timeout", "25", "/app/drain"), 25),
        (command("timeout", "25s", "sh", "-c", "/app/drain; sleep 60"), 25),
        (script("sleep 15"), 15),
        (script("  /bin/sleep   1h  "), 3600),
        (script("exec sleep 25", "ash"), 25),
        (script("sleep 10; sleep 15", "bash"), 25),
        (script("sleep 10 && sleep 15 || true"), 25),
        (script("set -e\nsleep 10 # until it is out of the pool\nexit 0"), 10),
        (script("echo 'sleep 99'; (sleep 5)"), 5),
        (script("timeout 10 nginx -s quit; sleep 5"), 15),
        (script("sleep 0.5"), 1),
        (script("sleep infinity"), FOREVER),
        (script(""), 0),
        ({"exec": {}}, 0),
    ],
)
def test_a_hook_that_only_sleeps_has_a_known_duration(hook: dict[str, Any], seconds: int) -> None:
    assert time_of(handler(hook)) == (seconds, True)


@pytest.mark.parametrize(
    ("hook", "seconds"),
    [
        (script("nginx -s quit; sleep 25"), 25),
        (script("sleep 2m && nginx -s quit"), 120),
        (script("while pgrep worker; do sleep 1; done"), 1),
        (script("if test -e /ready; then sleep 9; fi"), 9),
        (script("echo it\\'s draining; sleep 25; echo it\\'s done"), 0),
        (script("echo ${#a}; sleep 25"), 25),
        (script('echo "$(sleep 25)"'), 0),
        (script("sleep $DRAIN"), 0),
        (script("sleep ${DRAIN:-20}"), 0),
        (script("sleep " + "9" * 5000), 0),
        (script("sleep \u0663"), 0),
        (script("sleep 5; " * 1000), 0),
        (script("timeout 0 /app/drain"), 0),
        (command("sh", "/drain.sh"), 0),
        (command("/bin/sh", "-c"), 0),
        (command("sleep", "15", *["0"] * 5000), 0),
        (command("/app/asleep", "15"), 0),
        (command("powershell", "Start-Sleep", "5"), 0),
        ({"httpGet": {"path": "/drain", "port": 80}}, 0),
        ({}, 0),
    ],
)
def test_any_other_hook_may_take_longer_than_it_sleeps(hook: dict[str, Any], seconds: int) -> None:
    assert time_of(handler(hook)) == (seconds, False)
    assert unknown_hook(pod_of(containers=[{"name": "app", "lifecycle": {"preStop": hook}}])) == "app"
    assert not unknown_hook(pod_of(containers=[{"name": "app", "lifecycle": {"postStart": hook}}]))


def test_sleeps_of_all_hooks_count_including_sidecars() -> None:
    subject = pod_of(
        initContainers=[
            {"name": "proxy", "restartPolicy": "Always", "lifecycle": {"preStop": {"sleep": {"seconds": 3}}}}
        ],
        containers=[
            {"name": "plain"},
            {"name": "app", "lifecycle": {"postStart": {"sleep": {"seconds": 2}}, "preStop": command("sleep", "5")}},
        ],
    )

    assert [(sleep.field, sleep.seconds, sleep.native) for sleep in hook_sleeps(subject)] == [
        ("spec.initContainers[0].lifecycle.preStop", 3, True),
        ("spec.containers[1].lifecycle.preStop", 5, False),
        ("spec.containers[1].lifecycle.postStart", 2, True),
    ]


def test_injected_sleeps_are_recognized() -> None:
    assert time_of(native_sleep(5)) == time_of(exec_sleep(5)) == (5, True)
