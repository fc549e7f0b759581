"""Define the interface between the engine and the rules."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import msgspec

from webhook.capacity.view import Needs
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
    from webhook.rules.spec_warnings import SpecWarning
    from webhook.rules.subject import Subject

NO_NEEDS: Final = Needs()

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


class PolicyKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of policy.

    Attributes:
        spec: the model of the policies' ``spec``.
        compile: compiles a spec to a rule with ``mutate``, ``validate``, or both. A rule can also have ``needs``, which
            replaces the kind's, and ``parts``: policy tests must make each part fail at least once. Raises
            `webhook.policy.errors.SpecError` (or ``SpecErrors``) with the field path below ``spec``.
        lint: yields the probable mistakes in a valid spec, given the kinds of workloads.
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
    needs: Needs = NO_NEEDS
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

    @property
    def slug(self) -> str:
        """Return the name in kebab case: the first part of the findings' ids, and the name of the docs page."""
        return _CAPITAL.sub("-", self.name).lower()
