"""Cases of PolicyTests, as the requests that they describe."""

from __future__ import annotations

from datetime import UTC, datetime, time
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from webhook.documents.model import merge_patch
from webhook.manifests.objects import Manifest

if TYPE_CHECKING:
    from webhook.cli.judging.kinds import ResourceKinds
    from webhook.documents import FieldPath
    from webhook.policy.document import PolicyDocument
    from webhook.policy.errors import Problem
    from webhook.policy.policy_test import CaseSpec, PolicyTestSpec


class CannotRunError(Exception):
    """Report a case that contradicts itself, or needs a file that can't be read."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__(*problems)
        self.problems = problems


class PolicyTestCase:
    """Describe one case of a PolicyTest.

    Attributes:
        spec: the case, completed by what the document says for all cases.
    """

    def __init__(self, test: PolicyDocument, number: int) -> None:
        self.test = test
        self._shared: PolicyTestSpec = test.spec
        self._own = self._shared.cases[number]
        self._path: FieldPath = ("spec", "cases", number)
        self.spec: CaseSpec = self._shared.filled(self._own)

    @property
    def line(self) -> int:
        """Return the line where the case begins."""
        return self.test.document.position(self._path)[0]

    def at(self, field: str, *path: str | int) -> FieldPath:
        """Return the path of a field: in the case, or in the document for all cases."""
        shared = field not in self._own.model_fields_set and field in self._shared.model_fields_set
        return ("spec", field, *path) if shared else (*self._path, field, *path)

    def cannot_run(self, path: FieldPath, text: str) -> CannotRunError:
        """Return the error for a mistake at this path."""
        return CannotRunError(self.test.problem(path, text))

    @property
    def operation(self) -> str:
        """Return the operation of the request. Raise CannotRunError if it does not fit the objects."""
        changes = self._own.old_object is not None
        operation = self.spec.operation or ("UPDATE" if changes else "CREATE")
        if operation == "CREATE" and changes:
            raise self.cannot_run(self.at("oldObject"), "there is none before a CREATE; remove it, or write UPDATE")
        if operation == "UPDATE" and not changes:
            text = "UPDATE needs `oldObject`, what it changes; `oldObject: {}` if that is the document's object"
            raise self.cannot_run(self.at("operation"), text)
        if operation == "DELETE" and changes and self._own.object is not None:
            raise self.cannot_run(self.at("oldObject"), "DELETE has one object; write it as `oldObject` or as `object`")
        return operation

    def now(self, now: datetime) -> datetime:
        """Return the time of the request: on the day that the case names, else now."""
        return datetime.combine(self.spec.date, time(), UTC) if self.spec.date is not None else now

    def subject(self, kinds: ResourceKinds) -> Manifest:
        """Return the object of the request, or the object that a DELETE deletes.

        Raise CannotRunError if there is none, or it is no object.
        """
        deleted = self.operation == "DELETE" and self._own.object is None and self._own.old_object is not None
        subject = self._manifest("old_object" if deleted else "object", kinds)
        if kinds.resource(subject) is None and not kinds.meant(subject):
            text = f"nothing says which resource kind {subject.kind} of {subject.api_version} is; "
            fix = "mend it, or put its CustomResourceDefinition into the state"
            raise self.cannot_run((*subject.path, "kind"), text + fix)
        return subject

    def before(self, kinds: ResourceKinds) -> Manifest | None:
        """Return the object that an UPDATE changes; None for another operation. Raise CannotRunError as `subject`."""
        return self._manifest("old_object", kinds) if self.operation == "UPDATE" else None

    def namespace(self) -> Manifest | None:
        """Return the Namespace, or None if the case does not give its labels."""
        spec = self.spec.namespace
        if spec is None or spec.labels is None:
            return None
        metadata = {"name": spec.name, "labels": spec.labels}
        value = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        return Manifest(self.test.document, self.at("namespace"), "v1", "Namespace", value)

    def inline_state(self) -> list[Manifest]:
        """Return the objects that the case writes as state."""
        objects = self.spec.state.objects if self.spec.state is not None else ()
        paths = (self.at("state", "objects", number) for number in range(len(objects)))
        return [
            Manifest(self.test.document, path, each.api_version, each.kind, each.written())
            for path, each in zip(paths, objects, strict=True)
        ]

    def _manifest(self, field: str, kinds: ResourceKinds) -> Manifest:
        shared = self._shared.object
        own = getattr(self._own, field)
        name = "oldObject" if field == "old_object" else "object"
        if own is None and shared is None:
            raise self.cannot_run(self._path, f"has no `{name}`, and the document has no `object` for all cases")
        value: dict[str, Any] = shared.written() if shared is not None else {}
        if own is not None:
            value = merge_patch(value, own.written()) if shared is not None else own.written()
        path: FieldPath = (*self._path, name) if own is not None else ("spec", "object")
        for key in ("apiVersion", "kind"):
            if not value.get(key):
                raise self.cannot_run(path, f"is no Kubernetes object: it has no `{key}`")
        manifest = Manifest(self.test.document, path, value["apiVersion"], value["kind"], value)
        spec, resource = self.spec.namespace, kinds.resource(manifest)
        if spec is None or resource is None or not resource.namespaced or manifest.namespace == spec.name:
            return manifest
        return replace(manifest, value={**value, "metadata": {**manifest.metadata, "namespace": spec.name}})
