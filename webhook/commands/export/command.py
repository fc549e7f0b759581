"""Print policies as Kubernetes admission policies: ``spotgate export vap|map``.

Print policies as Kubernetes admission policies with their bindings, which also apply while the
webhook is down.

vap: policies that need no lookup, as ValidatingAdmissionPolicies (Kubernetes 1.30). map: the
injections of SpotPlacement, GracefulTermination, and ReclaimNotice for the current node pools,
as a MutatingAdmissionPolicy (Kubernetes 1.36). Standard error and the header list the omissions.

examples:
  %(prog)s vap | kubectl apply -f -
  %(prog)s vap --only reserved-labels.pods
  %(prog)s map --kubeconfig ~/.kube/config | kubectl apply -f -
  %(prog)s map --state cluster/ > mutating-admission-policy.yaml

exit codes:
  0  printed
  2  a policy is invalid or matches every resource, or the node pools can't be read
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from webhook.base.exits import FINE, CannotJudgeError
from webhook.base.terminal import complain
from webhook.base.text import LONG_LINE, listed, printable
from webhook.capacity.placement.supply import supply_of
from webhook.cluster.connection import Connection, missing_rules, run_on_cluster
from webhook.commands.export.admission_policies.export import export
from webhook.commands.shared.flags import (
    add_cluster,
    add_connection,
    add_kubernetes_version,
    add_list,
    add_namespace,
    add_policies,
    options_of,
)
from webhook.commands.shared.help import help_of
from webhook.documents.yaml_writer import dump_documents
from webhook.engine.lint import too_wide
from webhook.inputs.policies import read_policies, read_state
from webhook.rules.context import Context, Phase, utc_now

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from webhook.capacity.view import ClusterView
    from webhook.cluster.api import Api
    from webhook.engine.bundle import Bundle
    from webhook.registration.cel import JSON

DESCRIPTION, EPILOG = help_of(__doc__)

_ANSWER: Final = 10.0
"""The timeout of each response of the API server in seconds, as in `check`."""


def configure(parser: ArgumentParser) -> None:
    """Add the flags to the parser."""
    parser.add_argument(
        "what",
        choices=("vap", "map"),
        help="ValidatingAdmissionPolicies, or a MutatingAdmissionPolicy",
    )
    add_policies(parser)
    add_list(parser, "--only", "ID", "print only this policy, such as reserved-labels, or a part of it; repeatable")
    add_namespace(parser, "spotgate's namespace, which the policies skip")
    cluster = parser.add_argument_group("the cluster, for map")
    manifests = "manifests of its node pools, Namespaces and Nodes; files or folders; repeatable"
    add_list(cluster, "--state", "PATH", manifests, Path)
    add_connection(cluster, "read a live cluster")
    add_cluster(cluster)
    add_kubernetes_version(parser)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions(Connection):
    """The parsed flags."""

    what: str
    policies: list[Path]
    only: list[str]
    namespace: str
    state: list[Path]
    cluster: str
    kubernetes_version: tuple[int, int]


def run(namespace: Namespace) -> int:
    """Print the exported policies, and list the omissions."""
    options = options_of(ExportOptions, namespace)
    has_state, live = bool(options.state), options.kubeconfig is not None
    if has_state + live != (options.what == "map"):
        raise CannotJudgeError("error: map needs the node pools: pass --state or --kubeconfig; vap takes neither")
    if options.context is not None and not live:
        raise CannotJudgeError("error: --context requires --kubeconfig")
    bundle = read_policies(options.policies, own_namespace=options.namespace, cluster=options.cluster)
    if problems := list(too_wide(bundle)):
        raise CannotJudgeError("\n".join(map(str, problems)))
    pools, left_alone = "", list[str]()
    if options.what == "map":
        from webhook.commands.export.mutating_policy.export import export as export_mutating

        view = _live_view(options, bundle) if live else read_state(options.state, bundle)
        pools = f" and {len(view.pools or ())} node pools"
        if not supply_of(view, bundle.providers).spot:
            complain("warning: no node pool and no Node that was read is spot: is it the right cluster?")
        context = Context(phase=Phase.MUTATE, now=utc_now()).seeing(view, options.kubernetes_version)
        exported, left_out, left_alone = export_mutating(bundle, context)
    else:
        exported, left_out = export(bundle, utc_now().date())
    exported = _selected(exported, options.only)
    print(f"# Exported by `spotgate export {options.what}` from policies {bundle.hash}{pools}.")
    for line in _contents(exported, bundle):
        print(printable(f"# {line}"))
    for problem in left_out:
        where = f" ({problem.field})" if problem.field else ""
        complain(str(problem))
        print(printable(f"# Differs from the webhook: {problem.text}{where}"))
    for text in left_alone:
        complain(f"left to the webhook: {text}")
        print(printable(f"# Left to the webhook: {text}"))
    print(dump_documents(exported, width=LONG_LINE, short_in_brackets=True), end="")
    return FINE


def _selected(exported: list[JSON], only: list[str]) -> list[JSON]:
    """Return the named policies and parts, or all. Raise CannotJudgeError for an unknown name."""
    if unknown := [name for name in only if not _named(exported, name)]:
        names = ", ".join(item["metadata"]["name"] for item in exported[::2])
        raise CannotJudgeError(f"error: --only: no exported policy is {unknown[0]}; available: {names}")
    return [item for item in exported if not only or any(_named([item], name) for name in only)]


def _named(exported: list[JSON], name: str) -> list[JSON]:
    """Return the parts of a policy, or the named part, each followed by its binding."""
    return [item for item in exported if f"{item['metadata']['name']}.".startswith(f"{name}.")]


def _contents(exported: list[JSON], bundle: Bundle) -> Iterator[str]:
    """Yield what each policy does, and the resources that each of its parts concerns."""
    for policy in bundle.policies:
        if parts := _named(exported, policy.name)[::2]:
            yield f"{policy.name} ({policy.enforcement}): {policy.kind.spec.__doc__}"
        for part in parts:
            rules = part["spec"]["matchConstraints"]["resourceRules"]
            resources = dict.fromkeys(resource for rule in rules for resource in rule["resources"])
            yield f"  {part['metadata']['name']}: {listed(resources)}"


def _live_view(options: ExportOptions, bundle: Bundle) -> ClusterView:
    async def read(api: Api) -> ClusterView:
        from webhook.cluster.resources import read_cluster

        view, errors = await read_cluster(api, bundle.providers, budgets=False, seconds=_ANSWER)
        if errors:
            problems = (f"error: {api.url}: {sentence}" for sentence in errors.sentences)
            raise CannotJudgeError("\n".join([*problems, *missing_rules(errors.forbidden)]))
        return view

    return run_on_cluster("export", options, read)
