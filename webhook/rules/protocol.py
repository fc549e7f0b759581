"""Define the interface between the engine and the rules."""

from __future__ import annotations

import re
from itertools import product
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import msgspec
from pydantic.alias_generators import to_camel

from webhook.capacity.placement.target import CAPACITY_LABEL, ON_DEMAND, NotTargeting
from webhook.capacity.view import Needs
from webhook.model.decision import Outcome
from webhook.model.review import OPERATIONS
from webhook.policy.errors import SpecError, SpecErrors, did_you_mean
from webhook.policy.match import ResourceRule, is_named

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from webhook.capacity.placement.target import Target
    from webhook.capacity.providers.provider import Provider
    from webhook.kube.edit import PodEditor
    from webhook.kube.templates import Workload
    from webhook.model.decision import Violation
    from webhook.policy.common import MatchSpec, PolicySpec
    from webhook.rules.context import Context
    from webhook.rules.spec_warnings import SpecWarning
    from webhook.rules.subject import Subject

NO_NEEDS: Final = Needs()

NOT_MUTATED: Final = "The mutating webhook was skipped, or something undid its change, or the policy only audits."
"""Why a planned change of a Pod is missing."""

_CAPITAL: Final = re.compile(r"(?<!^)(?=[A-Z])")


def pod_noun(subject: Subject) -> str:
    """Return the words for what carries the Pod's labels and annotations in the manifest."""
    return "the pod template" if subject.template else "the Pod"


def run_on_demand(subject: Subject, target: Target | NotTargeting) -> str:
    """Return how to have a Pod run on demand, as an instruction. A label does not undo what else chooses spot.

    A selector next to the label may have been injected because of the label. If the user wrote it, the finding
    `on-demand-and-spot` follows the change of the label.
    """
    if isinstance(target, NotTargeting):
        return f"select a {target.chosen[0].kind} without spot nodes"
    if target.own and target.own == target.field:
        return f"remove its choice of spot, `{target.own}`"
    return f"label {pod_noun(subject)} `{CAPACITY_LABEL}: {ON_DEMAND}`"


@runtime_checkable
class Mutator(Protocol):
    """A rule that changes Pods on CREATE."""

    def mutate(self, subject: Subject, editor: PodEditor, context: Context) -> None:
        """Change the Pod through the editor. Change nothing when called again on the result."""


@runtime_checkable
class Validator(Protocol):
    """A rule that judges objects, without changing anything."""

    def validate(self, subject: Subject, context: Context) -> Iterable[Violation]:
        """Yield the violations. A mutator's are what it could not or did not inject, seen after all mutation."""


class Levels(msgspec.Struct, frozen=True):
    """The part of the spec and the greatest outcome of each finding that a policy sets; None if it is off.

    Findings are named by the beginning of their ids: ``disruption-budget`` is that of all about budgets.
    """

    by_name: Mapping[str, tuple[str, Outcome | None]]

    @classmethod
    def of(cls, words: Mapping[str, str]) -> Levels:
        """Return the levels that a policy sets, by the names of their fields in Python."""
        return cls(
            {
                name.replace("_", "-"): (f"findings.{to_camel(name)}", None if word == "off" else Outcome[word.upper()])
                for name, word in words.items()
            }
        )

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the names of the findings that are not off."""
        return tuple(part for part, outcome in self.by_name.values() if outcome is not None)

    def lowered(self, violations: Iterable[Violation]) -> Iterator[Violation]:
        """Yield the violations with at most the outcomes that the policy sets, without those that are off."""
        for violation in violations:
            name = next((name for name in self.by_name if violation.id.startswith(name)), "")
            part, most = self.by_name.get(name, (violation.part, violation.outcome))
            if most is not None:
                yield msgspec.structs.replace(violation, outcome=min(most, violation.outcome), part=part)


class Facts(msgspec.Struct, frozen=True):
    """The fact documents of a bundle, against which policies are compiled."""

    providers: Mapping[str, Provider]
    workloads: tuple[Workload, ...] = ()

    def expect_providers(self, names: Sequence[str]) -> None:
        """Raise SpecErrors if a policy's ``provider`` names something that is no CapacityProvider."""
        known = ", ".join(sorted(self.providers))
        mistakes = [
            SpecError(
                ("provider", number) if len(names) > 1 else ("provider",),
                f"there is no CapacityProvider `{name}`{did_you_mean(name, self.providers)}; there are: {known}",
            )
            for number, name in enumerate(names)
            if name not in self.providers
        ]
        if mistakes:
            raise SpecErrors(mistakes)


def expect_judged(match: MatchSpec, rules: Sequence[ResourceRule], what: str) -> None:
    """Raise SpecErrors if ``match`` names a resource or an operation that the policy kind does not judge.

    ``rules`` name all resources that the kind judges, without wildcards; ``what`` names them as a phrase.
    """
    known = [(of, judged.operations) for judged in rules for of in product(judged.api_groups, judged.resources)]
    mistakes: list[SpecError] = []
    for number, rule in enumerate(match.resource_rules or ()):
        for place, path in enumerate(rule.resources):
            written = ResourceRule(api_groups=rule.api_groups, resources=(path,), operations=())
            named = " or ".join(f"{path} of {group or 'the core group'}" for group in rule.api_groups)
            possible = {word for of, operations in known if is_named(written, *of) for word in operations}
            if not possible:
                hint = did_you_mean(named, [f"{resource} of {group}" for (group, resource), _ in known])
                text = f"this kind doesn't evaluate {named}{hint}; it evaluates {what}"
            elif possible.isdisjoint(rule.operations) and "*" not in rule.operations:
                allowed = ", ".join(word for word in OPERATIONS if word in possible)
                text = f"this kind evaluates {named} only on {allowed}"
            else:
                continue
            mistakes.append(SpecError(("match", "resourceRules", number, "resources", place), text))
    if mistakes:
        raise SpecErrors(mistakes)


class PolicyKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of policy.

    Attributes:
        spec: the model of their ``spec``.
        compile: compiles a spec to a rule, which has ``mutate``, ``validate`` or both; if its needs depend on the spec,
            ``needs`` in place of its kind's; and ``parts``, each of which policy tests must make fail once. Raises
            `webhook.policy.errors.SpecError` (or ``SpecErrors``) with the field path below ``spec``.
        lint: yields the probable mistakes in a valid spec, given the kinds of workloads.
        order: policies of lower order run first: a selector that one injects may make a Pod match another.
        template_outcome: the greatest outcome of a finding on a pod template inside a workload.
        unknown_outcome: the greatest outcome of a finding on unknown state on the server.
        counts_replicas: an unchanged pod template is judged again if ``spec.replicas`` decreases.
        guards_namespaces: it judges Namespaces that are a provider's own, or claim to be.
        expressions: a team's own expressions iterate over the whole object.
        any_size: it judges labels, also those of objects over a bound.
        pods_only: it judges only Pods, and ``match`` must name nothing else; so it is for all kinds that change Pods.
        entries: titles under which reports for people show several findings as one entry, by the names of the findings.
        writes: the fields of a Pod that it may change, as path expressions of jq.
        not_exported: why ``export vap`` does not export its policies, to complete "not exported: ..."
    """

    name: str
    spec: type[PolicySpec]
    compile: Callable[[Any, Facts], object]
    rules: Callable[[Facts], tuple[ResourceRule, ...]]
    lint: Callable[[Any, Collection[Workload]], Iterable[SpecWarning]] = lambda *_: ()
    needs: Needs = NO_NEEDS
    order: int = 1
    template_outcome: Outcome = Outcome.WARN
    unknown_outcome: Outcome = Outcome.WARN
    counts_replicas: bool = False
    guards_namespaces: bool = False
    expressions: bool = False
    any_size: bool = False
    pods_only: bool = False
    entries: Mapping[str, str] = msgspec.field(default_factory=dict)
    writes: tuple[str, ...] = ()
    not_exported: str = "`export vap` has no translation of its kind"

    @property
    def slug(self) -> str:
        """Return the name in kebab case: the first part of its findings' ids, and the name of its page."""
        return _CAPITAL.sub("-", self.name).lower()
