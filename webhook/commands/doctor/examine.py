"""Run all checks of an installation, in the order of an on-call engineer."""

from __future__ import annotations

from http import HTTPStatus

from webhook.cluster.api import Api, ApiError
from webhook.commands.doctor import configurations, control_plane, probes, replicas
from webhook.commands.doctor.installation import Diagnosis, read_installation


async def examine(api: Api, namespace: str) -> list[Diagnosis]:
    """Return the results of all checks. Raise ApiError if the cluster can't be read."""
    installed = await read_installation(api, namespace)
    probed = await probes.send_probes(installed)
    checks = {
        "capacity": replicas.check_replicas(installed),
        "replicas": replicas.check_states(installed),
        "certificates": replicas.check_trust(installed),
        "configurations": configurations.check_configurations(installed),
        "policies": probes.check_policies(installed, probed),
        "later webhooks": configurations.check_later_webhooks(installed, probed["SpotPlacement"].state),
        "ServiceAccount": control_plane.check_account(installed),
        "clocks": control_plane.check_clocks(installed),
        "versions": control_plane.check_versions(installed),
        "failed calls": control_plane.check_failed_calls(installed),
        "on-demand floor": control_plane.check_floor(installed),
    }
    diagnoses: list[Diagnosis] = []
    for name, check in checks.items():
        try:
            async for diagnosis in check:
                diagnoses.append(diagnosis)  # noqa: PERF401 - keeps the results before an error
        except ApiError as error:
            allow = error.status == HTTPStatus.FORBIDDEN
            fix = f"{'allow it' if allow else 'try again: the API server did not answer this'}; see docs/cli/doctor.md"
            diagnoses.append(Diagnosis(name, "unknown", str(error), fix))
    return diagnoses
