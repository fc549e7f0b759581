"""Check clocks, versions, and what the API server counts of calls that failed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from webhook.cli.doctor.diagnosis import Diagnosis
from webhook.cli.doctor.installation import read_text, samples
from webhook.rules.graceful_termination.rule import NATIVE_SLEEP

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from webhook.cli.doctor.installation import Installed

_SKEW: Final = 30.0
"""Seconds: certificates tolerate an hour, but leases, tokens and break-glass times do not."""

_MATCH_CONDITIONS: Final = (1, 30)
"""The version in which matchConditions of webhooks became stable: the configurations rely on them."""


async def check_clocks(installed: Installed) -> AsyncIterator[Diagnosis]:
    """Compare the clocks of the API server and of the replicas with this machine's."""
    skews = {each.name: each.skew for each in installed.replicas if each.version is not None}
    clocks = {"the API server": installed.skew, **skews}
    if off := [f"{name} by {skew:+.0f} s" for name, skew in clocks.items() if abs(skew) > _SKEW]:
        fix = "set the clocks by NTP; if all are off, it is this machine's"
        yield Diagnosis("clocks", "warn", f"apart from this machine: {', '.join(off)}", fix)
    else:
        yield Diagnosis("clocks", "ok", f"{', '.join(clocks)}: within {_SKEW:.0f} s of this machine")


async def check_versions(installed: Installed) -> AsyncIterator[Diagnosis]:
    """Compare API server and kubelets with what configurations and policies need."""
    api_server, kubelet = installed.view.api_server, installed.view.oldest_kubelet
    if api_server is None:
        yield Diagnosis("API server", "unknown", "its version can't be read", "allow `get /version`")
    elif api_server < _MATCH_CONDITIONS:
        least = _text(_MATCH_CONDITIONS)
        what = f"version {_text(api_server)} is older than {least}, which made matchConditions stable"
        yield Diagnosis("API server", "fail", what, f"upgrade it to {least}")
    else:
        yield Diagnosis("API server", "ok", f"version {_text(api_server)}")
    sleeps = {
        each.spec.method
        for each in (installed.bundle.documents if installed.bundle else ())
        if each.kind == "GracefulTermination" and each.spec is not None
    } - {"exec"}
    if kubelet is None:
        unread = f": {installed.unread[0]}" if installed.unread else ""
        yield Diagnosis("kubelets", "unknown", f"the oldest kubelet is not known{unread}", "allow `list nodes`")
    elif sleeps and kubelet < NATIVE_SLEEP:
        what = f"the oldest is {_text(kubelet)}: no native sleep before {_text(NATIVE_SLEEP)}, so images need a shell"
        yield Diagnosis("kubelets", "warn", what, "upgrade the nodes, or set `method: exec` knowingly")
    else:
        yield Diagnosis("kubelets", "ok", f"the oldest is {_text(kubelet)}")


def _text(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


async def check_failed_calls(installed: Installed) -> AsyncIterator[Diagnosis]:
    """Report the calls of spotgate that failed since the API server started."""
    text, _ = await read_text(installed.api, "/metrics")
    failed: Counter[str] = Counter()
    for labels, value in samples(text, "apiserver_admission_webhook_fail_open_count"):
        failed[f"{labels['name']} let through"] += int(value)
    for labels, value in samples(text, "apiserver_admission_webhook_rejection_count"):
        if labels["error_type"] == "calling_webhook_error":
            failed[f"{labels['name']} refused"] += int(value)
    ours = {what: count for what, count in failed.items() if count and what.partition(" ")[0].endswith(".spotgate.dev")}
    what = ", ".join(f"{what} {count}" for what, count in sorted(ours.items()))
    fix = "if the count grows: the API server's log says why; see docs/operate.md" if ours else ""
    what = f"since the start of the API server that answered: {what or 'none'}"
    yield Diagnosis("failed calls", "warn" if ours else "ok", what, fix)
