"""Check clocks, versions, failed calls, and the permissions of spotgate's ServiceAccount."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlencode

import msgspec

from webhook.capacity.placement.floor import ASSIGNED_LABEL, DELETION_COST, ON_DEMAND_COST
from webhook.cluster.installation import CONFIGURATION, CONFIGURATIONS
from webhook.cluster.resources import BUDGETS, NAMESPACES, all_nodes, all_pools
from webhook.cluster.source import PAGE, WatchedResource
from webhook.commands.doctor.installation import NODES, SECONDS, Diagnosis, Installed, read, read_text, samples
from webhook.rules.graceful_termination.rule import NATIVE_SLEEP

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator


_SKEW: Final = 30.0
"""The maximum clock skew in seconds. Certificates tolerate an hour; leases, tokens, and break-glass expiry don't."""

_MATCH_CONDITIONS: Final = (1, 30)
"""The Kubernetes version in which the webhooks' matchConditions, which the configurations use, became stable."""


async def check_clocks(installed: Installed) -> AsyncIterator[Diagnosis]:
    """Compare the clocks of the API server and the replicas with the clock of this machine."""
    skews = {replica.name: replica.skew for replica in installed.replicas if replica.version is not None}
    clocks = {"the API server": installed.skew, **skews}
    off = ", ".join(f"{name} by {skew:+.0f} s" for name, skew in clocks.items() if abs(skew) > _SKEW)
    fix = "synchronize the clocks with NTP; if all differ, this machine's clock is wrong"
    fine = f"{', '.join(clocks)}: within {_SKEW:.0f} s of this machine"
    yield Diagnosis.of("clocks", off and f"differ from this machine: {off}", fix, fine, "warn")


async def check_versions(installed: Installed) -> AsyncIterator[Diagnosis]:
    """Check that the API server and the kubelets support the features that configurations and policies use."""
    unread, view = installed.unread, installed.view
    api_server, kubelet = view.api_server or _MATCH_CONDITIONS, view.oldest_kubelet
    fine, least = f"version {_text(api_server)}", _text(_MATCH_CONDITIONS)
    old = f"{fine} is older than {least}, which made matchConditions stable"
    yield Diagnosis.of("API server", old if api_server < _MATCH_CONDITIONS else "", f"upgrade it to {least}", fine)
    if kubelet is None:
        why = unread.sentence(NODES) or "the cluster shows no Node"
        fix = "allow `list nodes`" if NODES in unread.forbidden else ""
        yield Diagnosis("kubelets", "unknown", f"the oldest kubelet is not known: {why}", fix)
        return
    documents = installed.bundle.documents if installed.bundle else ()
    specs = (document.spec for document in documents if document.kind == "GracefulTermination")
    sleeps = any(spec is not None and spec.method != "exec" for spec in specs)
    fine = f"the oldest is {_text(kubelet)}"
    old = f"{fine}: no native sleep before {_text(NATIVE_SLEEP)}, so images need a shell"
    fix = "upgrade the nodes, or set `method: exec` knowingly"
    yield Diagnosis.of("kubelets", old if sleeps and kubelet < NATIVE_SLEEP else "", fix, fine, "warn")


async def check_floor(installed: Installed) -> AsyncIterator[Diagnosis]:
    """Check that no other writer sets deletion costs on the Pods that the controller assigned to on-demand nodes."""
    query = urlencode({"labelSelector": f"{ASSIGNED_LABEL}=on-demand", "limit": PAGE})
    pods = await read(installed.api, f"/api/v1/pods?{query}")
    costs = [pod["metadata"].get("annotations", {}).get(DELETION_COST) for pod in (pods or {"items": ()})["items"]]
    if not costs:
        return
    others = sum(cost != ON_DEMAND_COST for cost in costs)
    wrong = f"{others} of {len(costs)} on-demand Pods have a {DELETION_COST} of another writer" if others else ""
    fix = "stop that writer, or a scale-down may delete on-demand Pods before spot Pods"
    yield Diagnosis.of("on-demand floor", wrong, fix, f"Pods assigned to on-demand nodes: {len(costs)}", "warn")


def _text(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


async def check_failed_calls(installed: Installed) -> AsyncIterator[Diagnosis]:
    """Report the calls to spotgate that failed since the API server started."""
    text, _ = await read_text(installed.api, "/metrics")
    failed: Counter[str] = Counter()
    for labels, value in samples(text, "apiserver_admission_webhook_fail_open_count"):
        failed[f"{labels['name']} failed open"] += int(value)
    for labels, value in samples(text, "apiserver_admission_webhook_rejection_count"):
        if labels["error_type"] == "calling_webhook_error":
            failed[f"{labels['name']} failed closed"] += int(value)
    ours = [item for item in sorted(failed.items()) if item[1] and item[0].partition(" ")[0].endswith(".spotgate.dev")]
    since = "since the start of the API server that answered"
    wrong = f"{since}: {', '.join(f'{what} {count}' for what, count in ours)}" if ours else ""
    fix = "if the count grows, see why in the API server's log, and see docs/operate.md"
    yield Diagnosis.of("failed calls", wrong, fix, f"{since}: none", "warn")


_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_REGISTRATION: Final = "admissionregistration.k8s.io"


class Access(NamedTuple):
    """One permission."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        what = f"{self.verb} {self.resource}{self.group and f'.{self.group}'}{self.name and f'/{self.name}'}"
        return f"{what} in {self.namespace}" if self.namespace else what


async def check_account(installed: Installed) -> AsyncIterator[Diagnosis]:
    """Report the permissions that spotgate needs and its ServiceAccount lacks."""
    if installed.deployment is None:
        return
    spec = installed.deployment["spec"]["template"]["spec"]
    account, own = spec.get("serviceAccountName", "default"), installed.namespace
    user = {
        "user": f"system:serviceaccount:{own}:{account}",
        "groups": ["system:serviceaccounts", f"system:serviceaccounts:{own}", "system:authenticated"],
    }
    name = f"ServiceAccount {account}"

    async def allowed(access: Access) -> bool:
        body = {"spec": user | {"resourceAttributes": access._asdict()}}
        async with installed.api.send("POST", _REVIEWS, body, SECONDS) as response:
            answer = msgspec.json.decode(await response.read())
        return bool(answer["status"]["allowed"])

    needed = list(_needed(installed))
    answers = await asyncio.gather(*map(allowed, needed))
    denied = "; ".join(str(access) for access, fine in zip(needed, answers, strict=True) if not fine)
    fix = "apply rbac.yaml of manifests/base, or of the component, again"
    fine = f"has the {len(needed)} permissions that spotgate needs here"
    yield Diagnosis.of(name, denied and f"it lacks permissions: {denied}", fix, fine)


def _needed(installed: Installed) -> Iterator[Access]:
    """Yield the permissions that this bundle needs. API groups that the cluster doesn't serve need none."""
    bundle = installed.bundle
    providers = bundle.providers.values() if bundle else ()
    sources: list[WatchedResource[Any]] = [NAMESPACES, all_nodes(providers), *all_pools(providers)]
    if bundle and bundle.reads_budgets:
        sources.append(BUDGETS)
    served = {(source.group, source.resource) for source in sources if source.group in installed.groups}
    for group, resource in sorted(served):
        yield from (Access(verb, resource, group) for verb in ("list", "watch"))
    verbs = ("get", "patch") if installed.self_managed else ("get",)
    for kind in CONFIGURATIONS:
        yield from (Access(verb, f"{kind.lower()}s", _REGISTRATION, name=CONFIGURATION) for verb in verbs)
    if installed.self_managed:
        namespace, name = installed.secret
        yield from (Access(verb, "secrets", namespace=namespace, name=name) for verb in verbs)
        yield Access("create", "secrets", namespace=namespace)
