"""Define the interface between the engine and the rules."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, runtime_checkable

import msgspec

from webhook.model.decision import Outcome, Violation
from webhook.policy.errors import SpecError, SpecErrors, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from webhook.capacity.providers.provider import Provider
    from webhook.kube.edit import PodEditor
    from webhook.kube.templates import Workload
    from webhook.policy.common import PolicySpec
    from webhook.policy.match import ResourceRule
    from webhook.rules.context import Context
    from webhook.rules.subject import Subject


_CAPITAL: Final = re.compile(r"(?<!^)(?=[A-Z])")


@runtime_checkable
class Mutator(Protocol):
    """A rule that changes Pods on CREATE."""

    def mutate(self, subject: Subject, editor: PodEditor, context: Context) -> None:
        """Change the Pod through the editor. A second call on the result must change nothing."""


@runtime_checkable
class Validator(Protocol):
    """A rule that validates objects and doesn't change them."""

    def validate(self, subject: Subject, context: Context) -> Iterable[Violation]:
        """Yield the violations. A mutator reports missing changes, after all mutation."""


class Keys(msgspec.Struct, frozen=True):
    """Keys of labels, annotations, or taints: those in ``exact``, and all that contain a text of ``containing``."""

    exact: frozenset[str] = frozenset()
    containing: frozenset[str] = frozenset()

    def __or__(self, other: Keys) -> Keys:
        return Keys(self.exact | other.exact, self.containing | other.containing)

    def __contains__(self, key: str) -> bool:
        return key in self.exact or any(text in key for text in self.containing)

    def __bool__(self) -> bool:
        return bool(self.exact or self.containing)


class Concern(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of an object, or of its templates' Pods, that may concern a rule. One part is enough.

    Attributes:
        everything: any object concerns the rule.
        labels: keys of the object's labels, and of labels that it gives to other objects.
        selectors: the nodeSelector or required node affinity of a Pod names a key that may distinguish spot nodes, or
            the Pod prefers some nodes.
        tolerations: a Pod tolerates taints with these keys, except the taints that every Pod tolerates by default.
        images: the image name of a container contains one of these texts.
        gates: a Pod has a scheduling gate with one of these names.
        node_name: a Pod is created with ``spec.nodeName``.
        in_spot_namespaces: every Pod in a namespace with a capacity label.
    """

    everything: bool = False
    labels: Keys = Keys()
    annotations: Keys = Keys()
    selectors: bool = False
    tolerations: Keys = Keys()
    images: frozenset[str] = frozenset()
    gates: frozenset[str] = frozenset()
    node_name: bool = False
    in_spot_namespaces: bool = False

    def __or__(self, other: Concern) -> Concern:
        return Concern(**{name: getattr(self, name) | getattr(other, name) for name in self.__struct_fields__})


NOTHING: Final = Concern()
EVERYTHING: Final = Concern(everything=True)


@runtime_checkable
class Selective(Protocol):
    """A rule that declares its concern. Any matching object concerns the other rules."""

    def concern(self, group: str, resource: str, /) -> Concern:
        """Return the concern of the rule in objects of this resource and the Pods of their templates."""


def concern_of(rules: Iterable[object], group: str, resource: str) -> Concern:
    """Return the combined concern of the rules."""
    concern = NOTHING
    for rule in rules:
        concern |= rule.concern(group, resource) if isinstance(rule, Selective) else EVERYTHING
    return concern


class Levels(msgspec.Struct, frozen=True):
    """The part of the spec and the strongest outcome of each finding that a policy sets; None if it is off.

    A name matches the beginning of ids: ``disruption-budget`` matches all findings about budgets.
    """

    by_name: Mapping[str, tuple[str, Outcome | None]]

    @classmethod
    def of(cls, words: Mapping[str, str]) -> Levels:
        """Return the levels for a map from field names in Python to the words of the policy."""
        return cls(
            {
                name.replace("_", "-"): (f"findings.{_camel(name)}", None if word == "off" else Outcome[word.upper()])
                for name, word in words.items()
            }
        )

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the names of the findings that are not off."""
        return tuple(part for part, outcome in self.by_name.values() if outcome is not None)

    def lowered(self, violations: Iterable[Violation]) -> Iterator[Violation]:
        """Yield the violations, lowered to the outcomes that the policy sets. Skip the ones that are off."""
        for violation in violations:
            name = next((name for name in self.by_name if violation.id.startswith(name)), "")
            part, most = self.by_name.get(name, (violation.part, violation.outcome))
            if most is not None:
                yield msgspec.structs.replace(violation, outcome=min(most, violation.outcome), part=part)


def _camel(name: str) -> str:
    return name[0] + name.title().replace("_", "")[1:]


_MISSPELT: Final = 0.9
"""The minimum similarity of a misspelled name to the correct one: ``statless``, ``PyTorchJob.kubeflow.com``."""


class SpecWarning(NamedTuple):
    """A probable mistake.

    Attributes:
        path: the field below ``spec``.
        text: the mistake and its correction.
    """

    path: tuple[str | int, ...]
    text: str


def hint_for(name: str, known: Collection[str]) -> str:
    """Return a hint for a name that is similar to a known one, or an empty string for known and other names."""
    return "" if name in known else did_you_mean(name, known, cutoff=_MISSPELT)


class Facts(msgspec.Struct, frozen=True):
    """The compiled fact documents of a bundle, which policies refer to."""

    providers: Mapping[str, Provider]
    workloads: tuple[Workload, ...] = ()

    def expect_providers(self, names: Sequence[str]) -> None:
        """Raise SpecErrors if a policy's ``provider`` names an unknown CapacityProvider."""
        known = ", ".join(sorted(self.providers))
        mistakes = [
            SpecError(
                ("provider", number) if len(names) > 1 else ("provider",),
                f"there is no CapacityProvider `{name}`{did_you_mean(name, self.providers)}; available: {known}",
            )
            for number, name in enumerate(names)
            if name not in self.providers
        ]
        if mistakes:
            raise SpecErrors(mistakes)


class PolicyKind(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A kind of policy.

    Attributes:
        spec: the model of the policies' ``spec``.
        compile: compiles a spec to a rule with ``mutate``, ``validate``, or both. A rule can also have
            ``parts``: policy tests must make each part fail at least once. Raises `webhook.policy.errors.SpecError` (or
            ``SpecErrors``) with the field path below ``spec``.
        lint: yields the probable mistakes in a valid spec, given the kinds of workloads.
        fresh_pools: requests wait for the node pools as the API server has them now, not as a watch reported them.
        budgets: the rule reads PodDisruptionBudgets.
        order: policies with a lower order run first: an injected selector may make a Pod match another policy.
        template_outcome: the strongest outcome of a finding on a pod template inside a workload.
        unknown_outcome: the strongest outcome of a finding on unknown state on the server.
        counts_replicas: evaluate an unchanged pod template again if ``spec.replicas`` decreases.
        guards_namespaces: evaluate Namespaces that a provider owns, or that claim to be owned by one.
        expressions: a team's expressions iterate over the whole object.
        any_size: evaluate the labels of objects that exceed a bound.
        pods_only: the kind evaluates only Pods, so ``match`` must name nothing else. Implied if the kind changes Pods.
        entries: the titles under which reports combine several findings into one entry, by the names of the findings.
        writes: the fields of a Pod that the kind may change, as jq path expressions.
        not_exported: why ``export vap`` doesn't export the policies, to complete "not exported: ..."
    """

    name: str
    spec: type[PolicySpec]
    compile: Callable[[Any, Facts], object]
    rules: Callable[[Facts], tuple[ResourceRule, ...]]
    lint: Callable[[Any, Collection[Workload]], Iterable[SpecWarning]] = lambda *_: ()
    fresh_pools: bool = False
    budgets: bool = False
    order: int = 1
    template_outcome: Outcome = Outcome.DENY
    unknown_outcome: Outcome = Outcome.WARN
    counts_replicas: bool = False
    guards_namespaces: bool = False
    expressions: bool = False
    any_size: bool = False
    pods_only: bool = False
    entries: Mapping[str, str] = msgspec.field(default_factory=dict)
    writes: tuple[str, ...] = ()
    not_exported: str = "`export vap` can't translate its kind"

    @cached_property
    def slug(self) -> str:
        """Return the name in kebab case: the first part of the findings' ids, and the name of the docs page."""
        return _CAPITAL.sub("-", self.name).lower()
