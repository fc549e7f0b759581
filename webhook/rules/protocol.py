"""What the engine and a rule know of each other."""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, runtime_checkable

import msgspec

from webhook.cluster.protocol import Needs
from webhook.decision import Outcome
from webhook.policy.errors import SpecError, SpecErrors, did_you_mean
from webhook.policy.match import is_named, is_namespace
from webhook.review import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from webhook.capacity.providers.provider import Provider
    from webhook.context import Context
    from webhook.decision import Trace, Violation
    from webhook.kube.edit import PodEditor
    from webhook.kube.pod import Pod
    from webhook.kube.templates import Workload
    from webhook.kube.workload import WorkloadFields
    from webhook.policy.common import MatchSpec, PolicySpec
    from webhook.review import Request

NO_NEEDS: Final = Needs()

_CAMEL: Final = re.compile("_(.)")
_CAPITAL: Final = re.compile(r"(?<!^)(?=[A-Z])")


class Subject(Protocol):
    """What a rule is shown: the object of the request, or a pod template inside it as the Pod it will become.

    Attributes:
        request: the request as it came (also for a template: the workload's).
        operation: CREATE, UPDATE, DELETE or CONNECT; CREATE for every template.
        trace: where to say why the rule did or did not act.
        template: True for a pod template.
        unchanged: True for a pod template that the request does not change, but makes fewer Pods of.
        path: where the template is in the workload; empty for an object.
        labels_only: True where the object is too large, and only its labels are shown.
        memo: what one rule keeps here for the next that looks at the same subject.
    """

    request: Request
    operation: str
    trace: Trace
    template: bool
    unchanged: bool
    path: tuple[str | int, ...]
    labels_only: bool
    memo: dict[str, Any]

    @property
    def pod(self) -> Pod:
        """The Pod (resource ``pods``, or a template); with the changes that were made before this policy."""

    @property
    def old_pod(self) -> Pod | None:
        """The Pod before the request."""

    @property
    def object(self) -> dict[str, Any] | None:
        """The object as plain JSON; None on DELETE. Not for templates."""

    @property
    def old_object(self) -> dict[str, Any] | None:
        """The object before the request as plain JSON; None on CREATE."""

    @property
    def workload(self) -> WorkloadFields:
        """What the workload says around its pod templates."""

    @property
    def old_workload(self) -> WorkloadFields:
        """The same before the request."""

    @property
    def shown(self) -> dict[str, Any] | None:
        """What is judged as plain JSON: the object, or the template as the Pod it will become, with all changes."""


def pod_noun(subject: Subject) -> str:
    """What has a Pod's labels and annotations where they are written, for people."""
    return "the pod template" if subject.template else "the Pod"


@runtime_checkable
class Mutator(Protocol):
    """A rule that changes Pods on CREATE."""

    def mutate(self, subject: Subject, editor: PodEditor, context: Context) -> None:
        """Change the Pod through the editor. A second time it must change nothing."""


@runtime_checkable
class Validator(Protocol):
    """A rule that judges; it cannot change anything."""

    def validate(self, subject: Subject, context: Context) -> Iterable[Violation]:
        """What is wrong. Of a mutator: what it could not or did not mend, seen on the object after all mutation."""


@runtime_checkable
class HasNeeds(Protocol):
    """A rule whose spec, and not its kind alone, says what it must know of the cluster."""

    @property
    def needs(self) -> Needs:
        """What it asks, instead of its kind's ``needs``."""


@runtime_checkable
class HasParts(Protocol):
    """A rule of several parts, of which each may find something: tests of the policy are to have it do so."""

    @property
    def parts(self) -> tuple[str, ...]:
        """They are, as `Violation.part` names them."""


def levels_of(findings: object) -> dict[str, Outcome]:
    """The most that each finding may become, by its name in the policy file; those that are off are left out.

    Args:
        findings: of a spec.
    """
    levels = vars(findings).items()
    return {_CAMEL.sub(_upper, name): Outcome[level.upper()] for name, level in levels if level != "off"}


def _upper(found: re.Match[str]) -> str:
    return found[1].upper()


class Facts(msgspec.Struct, frozen=True):
    """What policies are compiled against: the bundle's fact documents.

    Attributes:
        providers: by name.
        workloads: the kinds of workload that have pod templates.
    """

    providers: Mapping[str, Provider]
    workloads: tuple[Workload, ...] = ()

    def expect_provider(self, name: str) -> None:
        """Refuse a policy whose ``provider`` names none; empty: it names no one.

        Raises:
            SpecError: there is no such provider.
        """
        if name and name not in self.providers:
            known = ", ".join(sorted(self.providers))
            hint = did_you_mean(name, self.providers)
            raise SpecError(("provider",), f"there is no CapacityProvider `{name}`{hint}; there are: {known}")


class RequestAttributes(NamedTuple):
    """What beside operation, group and resource a rule may ask of a request."""

    version: str
    name: str
    in_namespace: bool

    @classmethod
    def of(cls, request: Request) -> RequestAttributes:
        """A Namespace's own request has it as its namespace, and is for a cluster-scoped object all the same."""
        in_namespace = bool(request.namespace) and not is_namespace(request)
        return cls(request.resource.version, request.name, in_namespace)


class ResourceRule(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of ``resourceRules``, as ValidatingAdmissionPolicy has it; ``*`` stands for all."""

    api_groups: tuple[str, ...]
    resources: tuple[str, ...]
    operations: tuple[str, ...]
    api_versions: tuple[str, ...] = ("*",)
    resource_names: tuple[str, ...] = ()
    scope: str = "*"

    def names(self, operation: str, group: str, path: str) -> bool:
        """Does it name requests of this kind? Its other parts are compared by `mismatch`."""
        return (operation in self.operations or "*" in self.operations) and is_named(self, group, path)

    @property
    def restricted(self) -> bool:
        """Does it name some requests of a kind, and others not?"""
        return self.api_versions != ("*",) or bool(self.resource_names) or self.scope != "*"

    def mismatch(self, asked: RequestAttributes) -> str:
        """The part that does not name the request, and what it does not name; empty: all do."""
        if "*" not in self.api_versions and asked.version not in self.api_versions:
            return f"apiVersions does not name {asked.version}"
        if self.resource_names and asked.name not in self.resource_names:
            return f"resourceNames does not name {asked.name}" if asked.name else "resourceNames: it has no name yet"
        if self.scope == "Cluster" and asked.in_namespace:
            return "scope is Cluster, and it is in a namespace"
        if self.scope == "Namespaced" and not asked.in_namespace:
            return "scope is Namespaced, and it is cluster-scoped"
        return ""


def expect_judged(match: MatchSpec, rules: Sequence[ResourceRule], what: str) -> None:
    """Refuse a resource of ``match`` that a kind makes nothing of.

    Args:
        match: as it is written.
        rules: all that the kind judges, without wildcards.
        what: that is, for people.

    Raises:
        SpecErrors: it names something else, or on other operations.
    """
    known: dict[tuple[str, str], set[str]] = {}
    for each in rules:
        for of in product(each.api_groups, each.resources):
            known.setdefault(of, set()).update(each.operations)
    mistakes: list[SpecError] = []
    for number, rule in enumerate(match.resource_rules or ()):
        for place, path in enumerate(rule.resources):
            written = ResourceRule(api_groups=rule.api_groups, resources=(path,), operations=())
            named = " or ".join(f"{path} of {group or 'the core group'}" for group in rule.api_groups)
            possible = set().union(*(operations for of, operations in known.items() if is_named(written, *of)))
            if not possible:
                hint = did_you_mean(named, [f"{resource} of {group}" for group, resource in known])
                text = f"this kind makes nothing of {named}{hint}; it looks at {what}"
            elif possible.isdisjoint(rule.operations) and "*" not in rule.operations:
                there = ", ".join(word for word in OPERATIONS if word in possible)
                text = f"this kind looks at {named} on {there} alone"
            else:
                continue
            mistakes.append(SpecError(("match", "resourceRules", number, "resources", place), text))
    if mistakes:
        raise SpecErrors(mistakes)


PODS_CREATE: Final = ResourceRule(api_groups=("",), resources=("pods",), operations=("CREATE",))


class PolicyKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of policy.

    Attributes:
        name: the ``kind`` of its documents.
        spec: the model of their ``spec``.
        compile: makes the rule; it has ``mutate``, ``validate`` or both. Problems were found by the model, or are
            raised as `webhook.policy.errors.SpecError` with the field path below ``spec``, or as ``SpecErrors``.
        rules: what it matches when its ``match`` does not say, given the facts.
        needs: what of the cluster its rule asks.
        order: policies of lower order come first. A selector that one injects may make a Pod another's business.
        template_outcome: the most a finding may become on a pod template inside a workload.
        unknown_outcome: the most a finding about something unknown may become on the server.
        counts_replicas: a pod template is judged again where only ``spec.replicas`` around it gets less.
        guards_namespaces: it judges Namespaces that are a provider's own, or claim to be.
        expressions: a team's own expressions go over the whole object, and take longer the larger it is.
        any_size: it judges labels, also those of an object that is too large to be judged otherwise.
        pods_only: it can make nothing of other objects, and ``match`` must not name them; the same holds of all kinds
            that change Pods.
        writes: the fields of a Pod that it may change, as path expressions of jq.
        not_exported: why ``export vap`` leaves its policies out, if it does: "not exported: ..."
    """

    name: str
    spec: type[PolicySpec]
    compile: Callable[[Any, Facts], object]
    rules: Callable[[Facts], tuple[ResourceRule, ...]]
    needs: Needs = NO_NEEDS
    order: int = 1
    template_outcome: Outcome = Outcome.WARN
    unknown_outcome: Outcome = Outcome.WARN
    counts_replicas: bool = False
    guards_namespaces: bool = False
    expressions: bool = False
    any_size: bool = False
    pods_only: bool = False
    writes: tuple[str, ...] = ()
    not_exported: str = "its kind can not be"

    @property
    def slug(self) -> str:
        """Its name in kebab case: the first part of its findings' ids, and the name of its page."""
        return _CAPITAL.sub("-", self.name).lower()
