"""Check that the webhook configurations exist and match the policies, and list the webhooks that run later."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from webhook.cluster.installation import CONFIGURATION, CONFIGURATIONS
from webhook.commands.doctor.installation import INSTALL, JSON, Diagnosis, Installed, State, read
from webhook.registration.configurations import configurations
from webhook.registration.differences import differences

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable


_PATH: Final = "/apis/admissionregistration.k8s.io/v1"
_APPLY: Final = "apply the output of `spotgate webhook-config` for the active policies (docs/install.md)"
_APPLY_AND_STOP: Final = f"{_APPLY}; if the difference returns, stop that field manager from changing it"
_REMOVE_COPY: Final = "if you don't intend this, remove it: a copy of an old version stays when you upgrade the image"


async def check_configurations(installed: Installed) -> AsyncIterator[Diagnosis]:
    """Compare both stored configurations with those that this version renders from the Deployment's policies."""
    stored = {kind: await read(installed.api, f"{_PATH}/{kind.lower()}s/{CONFIGURATION}") for kind in CONFIGURATIONS}
    bundle = installed.bundle
    yield installed.loaded
    for document in bundle.replacing if bundle else ():
        what = f"{document.kind} {document.name} in {Path(document.document.file).name} replaces the shipped one"
        yield Diagnosis("policies", "warn", what, _REMOVE_COPY)
    rendered = configurations(bundle, {"service": {}}) if bundle else ()
    wanted = {configuration["kind"]: configuration["webhooks"] for configuration in rendered}
    for kind, configuration in stored.items():
        if configuration is None and (bundle is None or kind in wanted):
            fix = INSTALL if installed.deployment is None else _APPLY
            yield Diagnosis(kind, "fail", "it doesn't exist, so nothing is enforced", fix)
        elif configuration is not None and bundle is None:
            yield Diagnosis(kind, "unknown", "it exists, but there are no policies to compare it with", _APPLY)
        elif configuration is not None:
            webhooks = configuration.get("webhooks", ())
            deviations = list(differences(wanted.get(kind, []), webhooks))
            for name, field, what in deviations:
                if field:
                    writer = _last_writer(configuration["metadata"].get("managedFields", ()), name, field)
                    yield Diagnosis(kind, "fail", f"webhooks[{name}].{field} {what}; {writer}", _APPLY_AND_STOP)
                else:
                    yield Diagnosis(kind, "fail", f"webhook {name} {what}", _APPLY)
            if not deviations:
                yield Diagnosis(kind, "ok", f"{len(webhooks)} webhooks, as this version renders them from the policies")


def _last_writer(managed: Iterable[JSON], webhook: str, field: str) -> str:
    """Describe the last writer of a field."""
    key = f'k:{{"name":"{webhook}"}}'
    owners = [
        entry for entry in managed if f"f:{field}" in entry.get("fieldsV1", {}).get("f:webhooks", {}).get(key, {})
    ]
    last = max(owners, key=lambda entry: str(entry.get("time", "")), default={"manager": "(unknown)"})
    return f"last written by field manager {last['manager']} ({last.get('time', 'when is not known')})"


async def check_later_webhooks(installed: Installed, placed: State) -> AsyncIterator[Diagnosis]:
    """Report the mutating webhooks after spotgate. ``placed``: the result of the probe that spotgate places."""
    listed = await read(installed.api, f"{_PATH}/mutatingwebhookconfigurations")
    # The API server sorts configurations by name, and calls spotgate again if a later webhook changes the object.
    later = [
        f"{configuration['metadata']['name']}/{webhook['name']}"
        for configuration in listed["items"]
        if configuration["metadata"]["name"] > CONFIGURATION
        for webhook in configuration.get("webhooks", ())
        if any(map(_about_pods, webhook.get("rules", ())))
    ]
    what = f"webhooks that change Pods after spotgate: {', '.join(later)}" if later else "no webhook changes Pods later"
    problem = "no probe shows the effect" if placed == "unknown" else "the probe did not keep what spotgate changes"
    fix = "rename or narrow that configuration: it may undo what spotgate does"
    wrong = f"{what}; {problem}" if later and placed != "ok" else ""
    yield Diagnosis.of("later webhooks", wrong, fix, what, placed)


def _about_pods(rule: JSON) -> bool:
    wanted = {"apiGroups": {"", "*"}, "resources": {"pods", "*", "*/*"}, "operations": {"CREATE", "*"}}
    return all(not values.isdisjoint(rule.get(member, ())) for member, values in wanted.items())
