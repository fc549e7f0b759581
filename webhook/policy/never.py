"""What of a policy can never take effect, and what is known to say so: one that does nothing looks like a good one.

What is said never to match, or never to hold, is certain. Of custom resources that nobody described only a name is told
that is nearly one that is known.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from webhook.kube.resources import GONE, built_in_groups, built_in_resources, is_built_in, resource_named
from webhook.policy.errors import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


class Never(NamedTuple):
    """Something that can never take effect: where below ``spec`` it is, and why."""

    path: tuple[str | int, ...]
    text: str


Places = set[bool | None]
"""Where objects are: in namespaces (True), in none (False), nobody knows (None)."""


class Rule(NamedTuple):
    """What of a resource rule counts here, whether it is written or what a kind looks at by default."""

    api_groups: Sequence[str]
    resources: Sequence[str]
    scope: str


LONG: Final = 8
"""Letters of a name that no other is likely to be like."""

_ODDLY_NAMED: Final = frozenset({"certificates.k8s.io", "rbac.authorization.k8s.io"})
"""API groups of Kubernetes that take almost any name."""


_OF_MANY: Final = frozenset({"k8s", "sigs", "x-k8s", *(group.partition(".")[0] for group in built_in_groups())})
"""Parts of the names of API groups that say nothing of whose they are."""


class Ground(msgspec.Struct, frozen=True):
    """What policies are judged by here.

    Attributes:
        namespaced: by API group and plural, of resources that are not Kubernetes' own: do they live in namespaces?
        system_namespaces: globs of namespaces that are never touched.
        workload_groups: API groups of workloads that are not Kubernetes' own.
    """

    namespaced: Mapping[tuple[str, str], bool]
    system_namespaces: tuple[str, ...]
    workload_groups: frozenset[str] = frozenset()

    def places(self, rules: Iterable[Rule]) -> Places:
        """Where that is which the rules name."""
        return {
            self._place(rule.scope, group, resource.partition("/")[0])
            for rule in rules
            for group, resource in product(rule.api_groups, rule.resources)
            if not self.lacks(group, resource)
        }

    def _place(self, scope: str, group: str, resource: str) -> bool | None:
        if (group, resource) == ("", "namespaces"):
            return None  # cluster-scoped, but the namespace parts of `match` ask about them too
        if scope != "*":
            return scope == "Namespaced"
        return self.place(group, resource)

    def place(self, group: str, resource: str) -> bool | None:
        """The same of one resource."""
        known = resource_named(group, resource)
        return known.namespaced if known is not None else self.namespaced.get((group, resource))

    def has_plain_names(self, group: str) -> bool:
        """Are objects of the API group named as hosts are, without ``*`` and the like?"""
        if is_built_in(group):
            return group not in _ODDLY_NAMED
        return any(group == of for of, _ in self.namespaced)

    def lacks(self, group: str, path: str) -> bool:
        """Is it certain that the API group has no such resource?"""
        resource = path.partition("/")[0]
        return is_built_in(group) and resource != "*" and resource_named(group, resource) is None

    def plurals(self, group: str) -> set[str]:
        """The resources that are known of an API group; ``*``: of all."""
        own = {plural for of, plural in self.namespaced if group in {"*", of}}
        return own | {each.plural for each in built_in_resources(group)}

    def why_no_group(self, group: str, resources: Sequence[str]) -> str:
        """Why nothing is in this API group; empty: something may be. One of custom resources has a dot in its name.

        ``compute.coreweave.cloud`` is the domain of CoreWeave's labels, and ``nodepools`` are in ``.com``.
        """
        if group in GONE:
            return f"never matches: Kubernetes has no API group {group} any more"
        known = {*built_in_groups(), *(of for of, _ in self.namespaced)}
        if group in {"*", *known}:
            return ""
        if "." not in group:
            return f"never matches: there is no API group {group}{did_you_mean(group, known)}"
        domain = group.rpartition(".")[0]
        meant = next(
            (
                each
                for each in sorted(known)
                if (len(each) >= LONG and is_misspelt(group, each))
                or (
                    (each.rpartition(".")[0] == domain or (each in self.workload_groups and are_alike(group, each)))
                    and self.plurals(each).issuperset(resources)
                )
            ),
            "",
        )
        return f"matches nothing that is known: API group {group}, did you mean `{meant}`?" if meant else ""


def are_alike(group: str, known: str) -> bool:
    """May one API group be written for the other: with a typing error, or with another company's domain?

    ``jobset.sigs.k8s.io`` is where JobSet is developed, and ``jobset.x-k8s.io`` is what it is called in a cluster.
    """
    shared = set(group.split(".")[:-1]).intersection(known.split(".")[:-1])
    return is_misspelt(group, known) or any(label not in _OF_MANY and len(label) > 2 for label in shared)  # noqa: PLR2004


def is_misspelt(word: str, right: str) -> bool:
    """Is it the right word with one letter too many, too few or wrong, or two of them exchanged?"""
    if len(word) != len(right):
        short, long = sorted((word, right), key=len)
        return any(long[:at] + long[at + 1 :] == short for at in range(len(long)))
    wrong = [at for at, letter in enumerate(word) if letter != right[at]]
    exchanged = len(wrong) == 2 and [word[at] for at in wrong] == [right[at] for at in reversed(wrong)]  # noqa: PLR2004
    return len(wrong) == 1 or (exchanged and wrong[1] == wrong[0] + 1)
