"""Render the two webhook configurations of a bundle, and the fields that Argo CD must ignore.

Intent
    The API server calls the webhook only for objects that may concern a policy. Pods and workloads have failurePolicy
    Ignore, so they still start without the webhook. Node pools have Fail, because a later check can't restore a lost
    fallback; changes that remove no fallback are still admitted while the webhook is down. A mode changes both: if no
    policy denies, all use Ignore, and the mode can set Fail for workloads.
Source
    https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
    https://argo-cd.readthedocs.io/en/stable/user-guide/diffing/
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from webhook.capacity.placement.target import CAPACITY_LABEL
from webhook.capacity.providers.provider import pool_resources
from webhook.engine.enforcement import NEVER_DENIED
from webhook.kube.pod import MIRROR_ANNOTATION
from webhook.kube.resources import NAMESPACE_NAME_LABEL
from webhook.model.decision import Outcome
from webhook.model.review import NODES
from webhook.registration.cel import CONTROLLERS_POD, JSON, literal, quoted
from webhook.registration.matched_resources import MatchedResources, as_rules, matched_resources
from webhook.registration.object_conditions import ObjectConditions
from webhook.registration.pool_conditions import PoolConditions, unasked_fields
from webhook.rules.context import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from webhook.engine.bundle import Bundle

TIMEOUT_SECONDS: Final = 3
"""The limit of a call: a webhook that hangs must not make every `kubectl apply` hang."""

NO_MIRROR_PODS: Final = {
    "name": "no-mirror-pods",
    # Only for Pods, because the annotation would exempt any workload. Only from nodes, because it would exempt any Pod.
    "expression": f"request.resource.resource != 'pods' || object == null || "
    f"!({quoted(MIRROR_ANNOTATION)} in object.?metadata.?annotations.orValue({{}})) || "
    f"!({quoted(NODES)} in request.userInfo.?groups.orValue([]))",
}
_NOT_CLEANING_UP: Final = {
    "name": "not-cleaning-up",
    "expression": f"!(request.userInfo.?username.orValue('') in {literal(sorted(NEVER_DENIED))})",
}
_NAMESPACES: Final = ("", "namespaces")
_SPOT: Final = {"key": CAPACITY_LABEL, "operator": "Exists"}
_NOT_SPOT: Final = {"key": CAPACITY_LABEL, "operator": "DoesNotExist"}


def configurations(bundle: Bundle, client_config: JSON) -> list[JSON]:
    """Return the configurations that have at least one webhook."""
    webhooks = _Webhooks(bundle, client_config)
    mutating = [{**webhook, "reinvocationPolicy": "IfNeeded"} for webhook in webhooks.mutating() if webhook["rules"]]
    validating = [webhook for webhook in webhooks.validating() if webhook["rules"]]
    return [
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{kind}WebhookConfiguration",
            "metadata": {"name": "spotgate", "labels": {"app.kubernetes.io/name": "spotgate"}},
            "webhooks": entries,
        }
        for kind, entries in (("Mutating", mutating), ("Validating", validating))
        if entries
    ]


def unconditional_resources(bundle: Bundle) -> dict[str, list[str]]:
    """Return the resources for which the webhook is always called, by the policy that any object may concern."""
    by_policy: dict[str, list[str]] = defaultdict(list)
    matched = matched_resources(bundle, Phase.VALIDATE)
    conditions = ObjectConditions(bundle, Phase.VALIDATE, matched)
    pools = unasked_fields(bundle.providers.values())
    for group, path in sorted(matched):
        if (group, path.partition("/")[0]) not in pools:
            for name in conditions.for_everything((group, path)):
                by_policy[name].append(f"{path}.{group}".rstrip("."))
    return dict(by_policy)


def without_system_namespaces(bundle: Bundle) -> JSON:
    """Return a selector of all namespaces except spotgate's and those that keep a cluster alive.

    The selector includes namespaces of providers, because only spotgate knows whether the provider is in use. In other
    clusters, any user can have these names and labels.
    """
    values = list(bundle.index.system_namespaces.names.patterns)
    return {"matchExpressions": [{"key": NAMESPACE_NAME_LABEL, "operator": "NotIn", "values": values}]}


class _Webhooks:
    """The webhooks of a bundle. Skip the ones without rules."""

    def __init__(self, bundle: Bundle, client_config: JSON) -> None:
        self._bundle = bundle
        self._client_config = client_config
        # An outage must not reject a request that no policy would deny.
        denies = any(policy.enforcement is Outcome.DENY for policy in bundle.policies)
        self._of_pools = "Fail" if denies else "Ignore"
        self._of_workloads = bundle.mode.workload_failure_policy if denies else "Ignore"

    def mutating(self) -> Iterator[JSON]:
        """Yield the webhooks that change Pods."""
        matched = matched_resources(self._bundle, Phase.MUTATE)
        yield from self._pair("mutate", "mutate-spot-namespaces", Phase.MUTATE, matched)

    def validating(self) -> Iterator[JSON]:
        """Yield the webhooks that validate."""
        matched = matched_resources(self._bundle, Phase.VALIDATE)
        resources = pool_resources(self._bundle.providers.values())
        about_pools = {(group, resource.plural) for resource in resources for group in (resource.group, "*")}
        pools = {key: match for key, match in matched.items() if (key[0], key[1].partition("/")[0]) in about_pools}
        yield from self._node_pools(pools)
        namespaces = {key: match for key, match in matched.items() if (key[0], key[1].partition("/")[0]) == _NAMESPACES}
        yield self._namespaces(namespaces)
        others = {key: match for key, match in matched.items() if key not in pools and key not in namespaces}
        yield from self._pair("workloads", "spot-namespaces", Phase.VALIDATE, others)

    def _node_pools(self, pools: MatchedResources) -> Iterator[JSON]:
        conditions = PoolConditions(self._bundle.providers.values(), pools)
        guarding = [_NOT_CLEANING_UP, *conditions.guarding()]
        yield self._webhook("node-pools", Phase.VALIDATE, as_rules(pools), guarding, failure_policy=self._of_pools)
        more = {
            key: replace(match, operations={"UPDATE"})
            for key, match in pools.items()
            if "UPDATE" in match.operations and "*" not in "".join(key) and conditions.has_more(key)
        }
        beyond = [_NOT_CLEANING_UP, *conditions.beyond(more)]
        yield self._webhook("node-pool-updates", Phase.VALIDATE, as_rules(more), beyond)

    def _namespaces(self, matched: MatchedResources) -> JSON:
        """Return the webhook for Namespaces, without a label selector, because any user can set labels."""
        names = literal(list(self._bundle.index.system_namespaces.names.patterns))
        essential = {"name": "no-system-namespaces", "expression": f"!(request.?name.orValue('') in {names})"}
        conditions = [essential, *ObjectConditions(self._bundle, Phase.VALIDATE, matched).of(any_object=True)]
        rules, policy = as_rules(matched), self._of_workloads
        webhook = self._webhook("namespaces", Phase.VALIDATE, rules, conditions, failure_policy=policy)
        del webhook["namespaceSelector"]
        return webhook

    def _pair(self, name: str, in_spot: str, phase: Phase, matched: MatchedResources) -> Iterator[JSON]:
        """Yield a webhook for most namespaces, and one for those with a capacity label, where any Pod may target spot.

        A match condition can't read the labels of a namespace, so the namespace selectors differ.
        """
        conditions = ObjectConditions(self._bundle, phase, matched)
        divided = conditions.tell_spot_namespaces
        policy = self._of_workloads if phase is Phase.VALIDATE else "Ignore"
        # Namespace selectors don't exclude cluster-scoped objects. Only the first webhook matches them.
        webhooks = [(name, "*", _NOT_SPOT)] + ([(in_spot, "Namespaced", _SPOT)] if divided else [])
        for its_name, scope, requirement in webhooks:
            own = [NO_MIRROR_PODS, *conditions.of(any_object=its_name == in_spot)]
            webhook = self._webhook(its_name, phase, as_rules(matched, scope=scope), own, failure_policy=policy)
            if divided:
                webhook["namespaceSelector"]["matchExpressions"].append(requirement)
            yield webhook

    def _webhook(
        self,
        name: str,
        phase: Phase,
        rules: list[JSON],
        conditions: list[dict[str, str]],
        *,
        failure_policy: str = "Ignore",
    ) -> JSON:
        if phase is Phase.VALIDATE:  # in every webhook, so that the component `strict` finds one to disable
            expression = f"!({CONTROLLERS_POD})" if self._bundle.decides_once else "true"
            conditions = [*conditions, {"name": "not-decided-by-mutate", "expression": expression}]
        service = {**self._client_config["service"], "path": f"/{phase}"}
        return {
            "name": f"{name}.spotgate.dev",
            "clientConfig": {**self._client_config, "service": service},
            "rules": rules,
            "namespaceSelector": without_system_namespaces(self._bundle),
            "matchConditions": conditions,
            "failurePolicy": failure_policy,
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "timeoutSeconds": TIMEOUT_SECONDS,
            "admissionReviewVersions": ["v1"],
        }


def ignore_differences(bundle: Bundle) -> list[dict[str, Any]]:
    """Return ``spec.ignoreDifferences`` of an Application; empty if no policy changes Pods.

    List only Pods: the webhook doesn't change workloads, and Argo CD doesn't compare the Pods that workloads create.
    """
    changing = (policy.kind for policy in bundle.policies if policy.enforcement is not Outcome.AUDIT)
    written = dict.fromkeys(path for kind in changing for path in kind.writes)
    return [{"group": "", "kind": "Pod", "jqPathExpressions": list(written)}] if written else []
