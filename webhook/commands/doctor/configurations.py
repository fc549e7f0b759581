"""Check that the webhook configurations are there, as rendered from the policies, and which webhooks run after."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from webhook.cluster.installation import CONFIGURATION, CONFIGURATIONS
from webhook.commands.doctor.installation import INSTALL, UNREADABLE, Diagnosis, read
from webhook.engine.namespaces import SYSTEM_NAMESPACES
from webhook.kube.resources import NAMESPACE_NAME_LABEL
from webhook.kube.selectors import LabelSelector
from webhook.registration.configurations import configurations
from webhook.registration.differences import differences

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator

    from webhook.commands.doctor.installation import JSON, Installed

_PATH: Final = "/apis/admissionregistration.k8s.io/v1"
_APPLY: Final = "apply what `spotgate webhook-config` prints for the policies in force (docs/install.md)"
_REMOVE_COPY: Final = "remove it if you don't mean to: a copy of an old version stays when you upgrade the image"
_SELECTOR_APART: Final = "no-system-namespaces"
"""The condition of the webhook about Namespaces, which stands for a selector."""


async def check_configurations(installed: Installed) -> AsyncIterator[Diagnosis]:
    """Compare both configurations with what this version renders from the policies of the Deployment."""
    stored = {kind: await read(installed.api, f"{_PATH}/{kind.lower()}s/{CONFIGURATION}") for kind in CONFIGURATIONS}
    if installed.bundle is None:
        fix = INSTALL if installed.deployment is None else "replicas go on with the last good ones: mend it"
        hidden = UNREADABLE in installed.bundle_problem
        fix = "use credentials that may read it; this says nothing about the installation" if hidden else fix
        yield Diagnosis("policies", "unknown" if hidden else "fail", installed.bundle_problem, fix)
        wanted = {}
    else:
        count = len(installed.bundle.policies)
        yield Diagnosis("policies", "ok", f"{count} in force, bundle {installed.bundle.hash}")
        for document in installed.bundle.replacing:
            what = f"{document.kind} {document.name} in {Path(document.document.file).name} replaces the shipped one"
            yield Diagnosis("policies", "warn", what, _REMOVE_COPY)
        rendered = configurations(installed.bundle, {"service": {}})
        wanted = {each["kind"]: each["webhooks"] for each in rendered}
    for kind, found in stored.items():
        if found is None:
            if installed.bundle is None or kind in wanted:
                fix = INSTALL if installed.deployment is None else _APPLY
                yield Diagnosis(kind, "fail", "it is not there: nothing of it is enforced", fix)
        elif installed.bundle is None:
            yield Diagnosis(kind, "unknown", "there, but there are no policies to compare it with", _APPLY)
        else:
            for each in _different(kind, wanted.get(kind, []), found):
                yield each
    names = installed.bundle.index.system_namespaces.names.patterns if installed.bundle else SYSTEM_NAMESPACES
    webhooks = [each for found in stored.values() if found for each in found.get("webhooks", ())]
    for each in _left_out(installed, webhooks, names):
        yield each


def _different(kind: str, wanted: Iterable[JSON], found: JSON) -> Iterator[Diagnosis]:
    """Yield each difference, with whoever wrote the field last."""
    there = found.get("webhooks", ())
    different = list(differences(wanted, there))
    for name, field, what in different:
        if field:
            writer = _last_writer(found["metadata"].get("managedFields", ()), name, field)
            fix = f"{_APPLY}; if it comes back, have that manager leave it alone"
            yield Diagnosis(kind, "fail", f"webhooks[{name}].{field} {what}; {writer}", fix)
        else:
            yield Diagnosis(kind, "fail", f"webhook {name} {what}", _APPLY)
    if not different:
        yield Diagnosis(kind, "ok", f"{len(there)} webhooks, as this version renders them from the policies")


def _last_writer(managed: Iterable[JSON], webhook: str, field: str) -> str:
    """Return in words who wrote a field last."""
    key = f'k:{{"name":"{webhook}"}}'
    owners = [each for each in managed if f"f:{field}" in each.get("fieldsV1", {}).get("f:webhooks", {}).get(key, {})]
    if not owners:
        return "nobody owns the field"
    last = max(owners, key=lambda each: str(each.get("time", "")))
    return f"last written by field manager {last['manager']} ({last.get('time', 'when is not known')})"


def _left_out(installed: Installed, webhooks: Iterable[JSON], names: Iterable[str]) -> Iterator[Diagnosis]:
    """Yield the webhooks that are asked about namespaces which keep a cluster, or spotgate, alive."""
    needed = sorted({*names, installed.namespace})
    same = True
    for each in webhooks:
        if any(condition["name"] == _SELECTOR_APART for condition in each.get("matchConditions", ())):
            continue
        selector = _selector(each.get("namespaceSelector", {}))
        held = [
            name
            for name in needed
            if selector.matches({**installed.view.namespaces.get(name, {}), NAMESPACE_NAME_LABEL: name})
        ]
        if each.get("rules") and held:
            same = False
            what = f"{each['name']} is asked about {', '.join(held)}: a stopped webhook could hold up their Pods"
            yield Diagnosis("system namespaces", "fail", what, _APPLY)
    if same:
        yield Diagnosis("system namespaces", "ok", f"{', '.join(needed)} are left out")


def _selector(written: JSON) -> LabelSelector:
    labels = ((key, "In", [value]) for key, value in written.get("matchLabels", {}).items())
    terms = ((each["key"], each["operator"], each.get("values", ())) for each in written.get("matchExpressions", ()))
    return LabelSelector([*labels, *terms])


async def check_later_webhooks(installed: Installed, *, placed: bool | None) -> AsyncIterator[Diagnosis]:
    """Name the mutating webhooks that change Pods after ours; `placed` says whether a probe kept what ours changed."""
    listed = await read(installed.api, f"{_PATH}/mutatingwebhookconfigurations")
    # The API server sorts configurations by name, and asks ours once more if a later one has changed the object.
    later = [
        f"{each['metadata']['name']}/{webhook['name']}"
        for each in listed["items"]
        if each["metadata"]["name"] > CONFIGURATION
        for webhook in each.get("webhooks", ())
        if any(map(_about_pods, webhook.get("rules", ())))
    ]
    name, after = "later webhooks", f"after spotgate are asked about Pods: {', '.join(later)}"
    fix = "rename or narrow that configuration: it may undo what spotgate does"
    if not later:
        yield Diagnosis(name, "ok", "no other mutating webhook is asked about Pods after spotgate")
    elif placed:
        yield Diagnosis(name, "ok", f"{after}; the probe kept what spotgate changed")
    elif placed is None:
        yield Diagnosis(name, "unknown", f"{after}; no probe tells whether they undo it", fix)
    else:
        yield Diagnosis(name, "fail", f"{after}; the probe did not keep what spotgate changes", fix)


def _about_pods(rule: JSON) -> bool:
    asked = {"apiGroups": {"", "*"}, "resources": {"pods", "*", "*/*"}, "operations": {"CREATE", "*"}}
    return all(not values.isdisjoint(rule.get(member, ())) for member, values in asked.items())
