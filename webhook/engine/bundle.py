"""Load policy files into a bundle: validate, compile, and index all of them, or reject all of them.

A policy set is a list of sources, which can include the shipped policies. A document with the same kind and name
replaces the whole shipped document. Every command and the server load their policies here. Facts (capacity providers,
pod templates) that the set doesn't contain come from the shipped policies, even if these aren't a source.
"""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
from collections import defaultdict
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import asdict, replace

import webhook.policy
import webhook.rules
from webhook.base.globs import Globs
from webhook.base.text import listed
from webhook.capacity.providers.provider import Provider
from webhook.capacity.providers.schema import CapacityProviderSpec
from webhook.engine.index import Index, Policy
from webhook.model.decision import Outcome
from webhook.policy.common import ExemptionSpec, ExemptSpec, Model, ModeSpec, PolicySpec, TargetingSpec
from webhook.policy.document import EXEMPTION, FACTS, MODE, PolicyDocument, policy_files
from webhook.policy.errors import PolicyErrors, Problem, SpecError, SpecErrors, did_you_mean
from webhook.policy.loader import duplicates, load_documents
from webhook.policy.match import Exemption, Matcher, ResourceRule
from webhook.policy.precedence import ALONE, Standing, standings
from webhook.policy.terms import Enforcement
from webhook.policy.workloads import WorkloadTemplatesSpec, workloads_in
from webhook.rules.context import Phase
from webhook.rules.protocol import Facts, Mutator, PolicyKind, Validator

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from webhook.capacity.providers.reader import PoolReader

SHIPPED: Final = Path(webhook.rules.__file__).resolve().parents[2] / "policies"
"""The policies that ship with spotgate: next to the packages, both in a checkout and in site-packages."""

_SHIPPED_FACTS: Final = (SHIPPED / "providers", SHIPPED / "workloads.yaml")

OWN_NAMESPACE: Final = "spotgate-system"
"""The default namespace of spotgate."""


@cache
def policy_kinds() -> Mapping[str, PolicyKind]:
    """Return every policy kind by name: the ``KIND`` in ``rule.py`` of each folder in `webhook.rules`."""
    folders = [module.name for module in pkgutil.iter_modules(webhook.rules.__path__) if module.ispkg]
    kinds: list[PolicyKind] = [importlib.import_module(f"webhook.rules.{name}.rule").KIND for name in folders]
    return {kind.name: kind for kind in sorted(kinds, key=lambda kind: kind.name)}


def example_files() -> dict[str, Path]:
    """Return the example file of every document kind, by kind. The pages in docs/ show the same examples."""
    others = Path(webhook.policy.__file__).with_name("examples").glob("*.yaml")
    of_kinds = {
        name: Path(inspect.getfile(kind.spec)).with_name("example.yaml") for name, kind in policy_kinds().items()
    }
    return dict(sorted(({file.stem: file for file in others} | of_kinds).items()))


def document_kinds() -> dict[str, type[Model]]:
    """Return the model of ``spec`` for every kind of document that a policy file can contain."""
    return {
        "CapacityProvider": CapacityProviderSpec,
        "WorkloadTemplates": WorkloadTemplatesSpec,
        EXEMPTION: ExemptionSpec,
        MODE: ModeSpec,
        **{name: kind.spec for name, kind in policy_kinds().items()},
    }


class Bundle(msgspec.Struct, frozen=True, dict=True):
    """A validated set of policies and facts.

    Attributes:
        index: the compiled policies.
        documents: the policies, exemptions, and facts as written in the files.
        replacing: the documents that replace a shipped one.
        mode: the limit on the enforcement of all policies.
        warns_controllers: policies change Pods, and none can deny the Pods of built-in controllers.
    """

    index: Index
    documents: tuple[PolicyDocument, ...]
    replacing: tuple[PolicyDocument, ...] = ()
    mode: ModeSpec = ModeSpec()
    warns_controllers: bool = False

    @cached_property
    def hash(self) -> str:
        """Return the hash of all documents; the same documents give the same hash."""
        import hashlib  # noqa: PLC0415 - 5 ms that few commands need

        digest = hashlib.sha256()
        for document in sorted(self.documents, key=lambda document: (document.kind, document.name)):
            digest.update(msgspec.json.encode(document.document.value, order="sorted"))
        return digest.hexdigest()[:16]

    @property
    def decides_once(self) -> bool:
        """Return whether ``/mutate`` decides both phases for Pods of built-in controllers: no outage denies them."""
        return self.warns_controllers and self.mode.workload_failure_policy == "Ignore"

    @property
    def policies(self) -> tuple[Policy, ...]:
        """Return the compiled policies in force, sorted by kind and name."""
        return self.index.policies

    @property
    def reads_budgets(self) -> bool:
        """Return whether a policy in force reads PodDisruptionBudgets."""
        return any(policy.kind.budgets for policy in self.policies)

    @property
    def own(self) -> tuple[PolicyDocument, ...]:
        """Return the documents that aren't in the shipped folder."""
        return tuple(document for document in self.documents if not _is_shipped(document))

    @property
    def providers(self) -> Mapping[str, Provider]:
        """Return the capacity providers by name."""
        return self.index.providers

    @property
    def readers(self) -> tuple[PoolReader, ...]:
        """Return the readers of all node-pool kinds."""
        return tuple(reader for provider in self.providers.values() for reader in provider.readers)


def load_bundle(paths: Sequence[Path] = (), *, own_namespace: str = "", cluster: str = "") -> Bundle:
    """Load the policies in these files and folders, or the shipped ones if ``paths`` is empty.

    Args:
        paths: files, and folders to read every ``*.yaml`` file below.
        own_namespace: the namespace of spotgate; defaults to the Pod's (``POD_NAMESPACE``), else spotgate-system.
        cluster: the name of this cluster; overrides ``thisCluster`` of the providers.

    Raises:
        PolicyErrors: the problems, each with its file, line, and field.
    """
    shipped = not paths or SHIPPED in paths
    own = [path for path in paths if path != SHIPPED]
    # Check each of several folders: emptying one by mistake must not disable its policies.
    problems = [
        Problem(str(path), 0, 0, "", "contains no policy; name a folder with policy files (*.yaml)")
        for path in paths
        if path.is_dir() and not policy_files((path,))
    ]
    kinds, files = document_kinds(), policy_files(own)
    documents = load_documents(files, kinds, problems)
    # In a checkout, the user may pass shipped files in `paths`: don't load them twice.
    base_files = [file for file in policy_files((SHIPPED,) if shipped else _SHIPPED_FACTS) if file not in files]
    base_kinds = kinds if shipped else {name: kinds[name] for name in FACTS}
    base = load_documents(base_files, base_kinds, problems, trusted=True)
    brought = {(document.kind, document.name): document for document in documents}
    replaced = [(document, brought[key]) for document in base if (key := (document.kind, document.name)) in brought]
    base = [document for document in base if (document.kind, document.name) not in brought]
    if shipped:
        problems += [duplicate for duplicate in duplicates([*base, *documents]) if duplicate not in problems]
    elif not problems and not any(document.is_policy for document in documents):
        text = "contains no policy; name the policies too: `--policies shipped` for those of spotgate"
        problems.append(Problem(", ".join(map(str, paths)), 0, 0, "", text))
    if problems:
        raise PolicyErrors(problems)
    try:
        bundle = _bundle([*base, *documents], own_namespace, cluster)
    except PolicyErrors as error:
        raise PolicyErrors(_explained(error.problems, replaced)) from None
    return replace(bundle, replacing=tuple(own for _, own in replaced))


def _explained(
    problems: Sequence[Problem], replaced: Iterable[tuple[PolicyDocument, PolicyDocument]]
) -> Sequence[Problem]:
    """Return the problems. Those of shipped policies come from a provider that lacks node pools of the shipped one."""
    own = [problem for problem in problems if not Path(problem.file).is_relative_to(SHIPPED)]
    lost: list[Problem] = []
    for shipped, document in replaced:
        providers = [item.spec for item in (shipped, document) if item.kind == "CapacityProvider"]
        pools = [{f"{reader.resource} of {reader.group}" for reader in spec.node_pools} for spec in providers]
        if pools and (missing := sorted(pools[0] - pools[1])):
            text = f"lacks {listed(missing)}, which shipped policies need; copy `nodePools` from {_shown(shipped)}"
            lost.append(document.problem(("spec", "nodePools"), f"{text}, or give the provider another name"))
    return [*own, *lost] if lost and len(own) < len(problems) else problems


def _bundle(documents: Sequence[PolicyDocument], own_namespace: str, cluster: str) -> Bundle:
    """Compile and index the documents. Raise PolicyErrors if any has a problem."""
    problems: list[Problem] = []
    by_kind: dict[str, list[PolicyDocument]] = defaultdict(list)
    for document in documents:
        by_kind[document.kind].append(document)
    written = [document for document in documents if document.is_policy]

    # The spot taints are a fact of the cluster: every policy must place the Pod on the same pools.
    placing = (document for document in by_kind["SpotPlacement"] if document.in_force)
    spot_taints = [taint for document in placing for taint in document.spec.spot_taints]
    providers = {
        document.name: Provider.of(document.name, document.spec, spot_taints, cluster)
        for document in by_kind["CapacityProvider"]
    }
    facts = Facts(providers, workloads_in(document.spec for document in by_kind["WorkloadTemplates"]))
    problems += _unmatched_names(by_kind[EXEMPTION], [document.name for document in written])
    shared = [
        (Globs(document.spec.policies), _exemption(document, ("spec",), document.spec, f"{EXEMPTION} {document.name}"))
        for document in by_kind[EXEMPTION]
    ]
    mode = _mode(by_kind[MODE], problems)
    standing = standings(written, _is_shipped, problems)
    policies: list[Policy] = []
    for document in written:
        try:
            policy = _compile(document, facts, shared, standing.get(document.name, ALONE))
        except (SpecError, SpecErrors) as error:
            errors = error.errors if isinstance(error, SpecErrors) else (error,)
            problems += (document.problem(("spec", *mistake.path), mistake.problem) for mistake in errors)
            continue
        if document.in_force:
            enforcement = min(policy.enforcement, Outcome[mode.enforcement.upper()])
            policies.append(replace(policy, enforcement=enforcement, declared=policy.enforcement))
    if problems:
        raise PolicyErrors(problems)

    namespace = own_namespace or os.environ.get("POD_NAMESPACE") or OWN_NAMESPACE
    policies.sort(key=lambda policy: (policy.kind.order, policy.kind.name, policy.name))
    index = Index(policies, facts.workloads, providers, namespace)
    mutating, validating = (index.route_of(phase, "CREATE", "", "pods") for phase in Phase)
    can_deny = validating is None or any(policy.controller_denies for policy in validating.direct)
    return Bundle(
        index=index,
        documents=tuple(documents),
        mode=mode,
        warns_controllers=mutating is not None and not can_deny,
    )


def _mode(documents: Sequence[PolicyDocument], problems: list[Problem]) -> ModeSpec:
    """Return the mode of a bundle. Report a second one: the order of files must not decide which one applies."""
    for document in documents[1:]:
        first = f"{_shown(documents[0])}:{documents[0].document.line}"
        problems.append(document.problem(("kind",), f"there is another {MODE}, at {first}; keep one"))
    return documents[0].spec if documents else ModeSpec()


def _unmatched_names(exemptions: Iterable[PolicyDocument], names: Sequence[str]) -> Iterable[Problem]:
    """Yield a problem for each pattern of an Exemption document that matches no policy."""
    for document in exemptions:
        for number, glob in enumerate(document.spec.policies):
            if not any(map(Globs((glob,)).match, names)):
                known = ", ".join(sorted(names)) or "none"
                text = f"no policy is named {glob}{did_you_mean(glob, names)}; available: {known}"
                yield document.problem(("spec", "policies", number), text)


def _exemption(document: PolicyDocument, path: tuple[str | int, ...], spec: ExemptSpec, name: str) -> Exemption:
    line, _ = document.document.position(path)
    return Exemption(spec, name, f"{_shown(document)}:{line}")


def _is_shipped(document: PolicyDocument) -> bool:
    return Path(document.document.file).is_relative_to(SHIPPED)


def _shown(document: PolicyDocument) -> str:
    """Return the path of the file for messages, shortened for shipped files."""
    file = Path(document.document.file)
    return str(file.relative_to(SHIPPED.parent) if _is_shipped(document) else file)


def _compile(
    document: PolicyDocument, facts: Facts, shared: Iterable[tuple[Globs, Exemption]], standing: Standing
) -> Policy:
    kind = policy_kinds()[document.kind]
    spec: PolicySpec = document.spec
    claims: tuple[str, ...] = ()
    if isinstance(spec, TargetingSpec):
        facts.expect_providers(claims := spec.provider)
        if standing.rivals:  # several policies then name a provider, so none of them says which one this cluster has
            spec = replace(spec, provider=())
    rule = kind.compile(spec, facts)
    mutator = rule if isinstance(rule, Mutator) else None
    if kind.pods_only or mutator is not None:
        _refuse_other_than_pods(spec, changes=mutator is not None)
    declared = spec.match.resource_rules
    return Policy(
        name=document.name,
        kind=kind,
        enforcement=Outcome[spec.enforcement.name] if spec.enforcement is not Enforcement.OFF else Outcome.AUDIT,
        rules=kind.rules(facts) if declared is None else tuple(ResourceRule(**asdict(rule)) for rule in declared),
        exclude=tuple(ResourceRule(**asdict(rule)) for rule in spec.match.exclude_resource_rules),
        matcher=Matcher(spec.match),
        exemptions=(
            *(
                _exemption(document, ("spec", "exempt", number), entry, f"exempt[{number}]")
                for number, entry in enumerate(spec.exempt)
            ),
            *(exemption for policies, exemption in shared if policies.match(document.name)),
        ),
        break_glass=Globs(spec.break_glass.groups if spec.break_glass else ()),
        controller_denies=spec.controller_created == "deny",
        mutator=mutator,
        validator=rule if isinstance(rule, Validator) else None,
        standing=standing,
        claims=claims,
    )


def _refuse_other_than_pods(spec: PolicySpec, *, changes: bool) -> None:
    """Raise SpecError if a policy kind for Pods matches other resources, or operations on which it can't act.

    On a workload, the rule would evaluate the workload's labels as a Pod's. On DELETE, the request has no object. After
    CREATE, the API server rejects changes to a Pod's scheduling and shutdown, so a patch would fail the request.

    Source: https://kubernetes.io/docs/concepts/workloads/pods/#pod-update-and-replacement
    """
    for number, rule in enumerate(spec.match.resource_rules or ()):
        path = ("match", "resourceRules", number)
        if changes and rule.operations != ("CREATE",):
            text = "this kind changes Pods, which can only be done on CREATE: write [CREATE]"
            raise SpecError((*path, "operations"), text)
        if not {"CREATE", "UPDATE"}.issuperset(rule.operations):
            raise SpecError((*path, "operations"), "this kind evaluates Pods before they run: write [CREATE, UPDATE]")
        if rule.api_groups != ("",) or rule.resources != ("pods",):
            text = 'this kind evaluates only Pods and pod templates: write apiGroups: [""] and resources: [pods]'
            raise SpecError(path, text)
