"""What the engine and a rule know of each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import msgspec

from webhook.cluster.protocol import Needs
from webhook.decision import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from webhook.capacity.provider import Provider
    from webhook.context import Context
    from webhook.decision import Trace, Violation
    from webhook.kube.edit import PodEditor
    from webhook.kube.pod import Pod
    from webhook.kube.templates import Workload
    from webhook.policy.common import PolicySpec
    from webhook.review import Request

NO_NEEDS: Final = Needs()


class Subject(Protocol):
    """What a rule is shown: the object of the request, or a pod template inside it as the Pod it will become.

    Attributes:
        request: the request as it came (also for a template: the workload's).
        operation: CREATE, UPDATE, DELETE or CONNECT; CREATE for every template.
        trace: where to say why the rule did or did not act.
        template: True for a pod template.
        path: where the template is in the workload; empty for an object.
    """

    request: Request
    operation: str
    trace: Trace
    template: bool
    path: tuple[str | int, ...]

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


class Facts(msgspec.Struct, frozen=True):
    """What policies are compiled against: the bundle's fact documents.

    Attributes:
        providers: by name.
        workloads: the kinds of workload that have pod templates.
    """

    providers: Mapping[str, Provider]
    workloads: tuple[Workload, ...] = ()


class ResourceRule(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of ``resourceRules``, as ValidatingAdmissionPolicy has it; ``*`` stands for all."""

    api_groups: tuple[str, ...]
    resources: tuple[str, ...]
    operations: tuple[str, ...]
    api_versions: tuple[str, ...] = ("*",)


PODS_CREATE: Final = ResourceRule(api_groups=("",), resources=("pods",), operations=("CREATE",))


class PolicyKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of policy.

    Attributes:
        name: the ``kind`` of its documents.
        spec: the model of their ``spec``.
        compile: makes the rule; it has ``mutate``, ``validate`` or both. Problems were found by the model, or are
            raised as `webhook.policy.common.SpecError` with the field path below ``spec``.
        rules: what it matches when its ``match`` does not say, given the facts.
        needs: what of the cluster its rule asks.
        order: policies of lower order come first. A selector that one injects may make a Pod another's business.
        template_outcome: the most a finding may become on a pod template inside a workload.
        unknown_outcome: the most a finding about something unknown may become on the server.
    """

    name: str
    spec: type[PolicySpec]
    compile: Callable[[Any, Facts], object]
    rules: Callable[[Facts], tuple[ResourceRule, ...]]
    needs: Needs = NO_NEEDS
    order: int = 1
    template_outcome: Outcome = Outcome.WARN
    unknown_outcome: Outcome = Outcome.WARN
