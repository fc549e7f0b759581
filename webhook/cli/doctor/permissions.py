"""Check what doctor and spotgate's ServiceAccount may do, as the API server answers it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from webhook.cli.doctor.diagnosis import Diagnosis
from webhook.cli.doctor.installation import SECONDS
from webhook.cluster.resources import all_budgets, all_namespaces, all_nodes, all_pools

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from webhook.cli.doctor.installation import JSON, Installed
    from webhook.cluster.source import WatchedResource

_REVIEWS: Final = "/apis/authorization.k8s.io/v1"
_REGISTRATION: Final = "admissionregistration.k8s.io"
_CONFIGURATIONS: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")


class Access(NamedTuple):
    """Hold one permission."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        what = f"{self.verb} {self.resource}{self.group and f'.{self.group}'}{self.name and f'/{self.name}'}"
        return f"{what} in {self.namespace}" if self.namespace else what

    def attributes(self) -> JSON:
        """Return it as the API server asks for it."""
        if self.resource.startswith("/"):
            return {"nonResourceAttributes": {"verb": self.verb, "path": self.resource}}
        resource, _, subresource = self.resource.partition("/")
        fields = self._asdict() | {"resource": resource, "subresource": subresource}
        return {"resourceAttributes": {key: value for key, value in fields.items() if value}}


async def check_own_permissions(installed: Installed) -> AsyncIterator[Diagnosis]:
    """Ask which of the things that doctor reads the user may not."""
    own = installed.namespace
    wanted = [
        *(Access("get", resource, _REGISTRATION, name="spotgate") for resource in _CONFIGURATIONS),
        Access("list", "mutatingwebhookconfigurations", _REGISTRATION),
        *(Access("get", resource, namespace=own) for resource in ("configmaps", "pods/proxy")),
        Access("get", "nodes"),
        Access("create", "pods", namespace="default"),
        Access("create", "subjectaccessreviews", "authorization.k8s.io"),
        Access("get", "/metrics"),
    ]
    denied = await _denied(installed, "selfsubjectaccessreviews", {}, wanted)
    if denied:
        fix = "use credentials that may: what needs them is unknown"
        yield Diagnosis("your permissions", "warn", f"you may not: {'; '.join(map(str, denied))}", fix)
    else:
        yield Diagnosis("your permissions", "ok", "all that doctor reads")


async def check_account(installed: Installed) -> AsyncIterator[Diagnosis]:
    """Ask which of the things that spotgate needs its ServiceAccount may not."""
    if installed.deployment is None:
        return
    spec = installed.deployment["spec"]["template"]["spec"]
    account, own = spec.get("serviceAccountName", "default"), installed.namespace
    user = {
        "user": f"system:serviceaccount:{own}:{account}",
        "groups": ["system:serviceaccounts", f"system:serviceaccounts:{own}", "system:authenticated"],
    }
    name = f"ServiceAccount {account}"
    needed = list(_needed(installed))
    denied = await _denied(installed, "subjectaccessreviews", user, needed)
    if denied:
        fix = "apply rbac.yaml of manifests/base, or of the component, again"
        yield Diagnosis(name, "fail", f"it may not: {'; '.join(map(str, denied))}", fix)
    else:
        yield Diagnosis(name, "ok", f"may do the {len(needed)} things that spotgate needs here")


def _needed(installed: Installed) -> Iterator[Access]:
    """Yield what is needed for this bundle, in this cluster: groups that it does not serve need no permission."""
    bundle = installed.bundle
    providers = bundle.providers.values() if bundle else ()
    sources: list[WatchedResource[Any]] = [all_namespaces(), all_nodes(providers), *all_pools(providers)]
    if bundle and any(policy.needs.budgets for policy in bundle.policies):
        sources.append(all_budgets())
    for group, resource in sorted({(each.group, each.resource) for each in sources if each.group in installed.groups}):
        yield from (Access(verb, resource, group) for verb in ("list", "watch"))
    verbs = ("get", "patch") if installed.self_managed else ("get",)
    for resource in _CONFIGURATIONS:
        yield from (Access(verb, resource, _REGISTRATION, name="spotgate") for verb in verbs)
    if installed.self_managed:
        namespace, name = installed.secret()
        yield from (Access(verb, "secrets", namespace=namespace, name=name) for verb in verbs)
        yield Access("create", "secrets", namespace=namespace)


async def _denied(installed: Installed, kind: str, user: JSON, wanted: Iterable[Access]) -> list[Access]:
    async def allowed(access: Access) -> bool:
        body = {"spec": access.attributes() | user}
        async with installed.api.send("POST", f"{_REVIEWS}/{kind}", body, SECONDS) as response:
            answer = msgspec.json.decode(await response.read())
        return bool(answer["status"]["allowed"])

    asked = list(wanted)
    answers = await asyncio.gather(*map(allowed, asked))
    return [each for each, fine in zip(asked, answers, strict=True) if not fine]
