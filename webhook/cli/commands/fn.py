"""``spotgate fn``: a KRM function, which kustomize and kpt run on the objects that they have rendered.

Source: https://github.com/kubernetes-sigs/kustomize/blob/master/cmd/config/docs/api-conventions/functions-spec.md (v1)
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec
from msgspec.structs import replace

from webhook.cli.exits import CANNOT_JUDGE, FINE, FOUND, CannotJudgeError
from webhook.cli.judging.inputs import Court
from webhook.cli.judging.project import take_project_file
from webhook.cli.options import add_inputs
from webhook.cli.output.fn_results import Report
from webhook.cli.terminal import complain
from webhook.decision import Outcome
from webhook.documents import LIMITS, DocumentError, read_documents
from webhook.documents.edit import EditError, edited
from webhook.manifests.files import STDIN, Source
from webhook.manifests.objects import Manifest, Manifests
from webhook.patch import apply_json
from webhook.policy.errors import Problem, did_you_mean

if TYPE_CHECKING:
    from argparse import Namespace

    from webhook.cli.judging.judge import Judgement
    from webhook.documents import Document

DESCRIPTION: Final = """\
Judge and change the objects of a ResourceList, as a KRM function in kustomize or kpt.

Reads a ResourceList on standard input and writes one on standard output: with what the webhook
would inject in its items, and with what it would say as results. Findings are on standard error
too, since kustomize does not show results. Comments and the order of fields stay.
"""

EPILOG: Final = """\
functionConfig:
  A ConfigMap. Its data are these, which mean what the flags of `spotgate check` and what
  .spotgate.yaml say:
    mode                mutate: inject, report nothing; validate: report, change nothing;
                        both: the default
    failOn              deny (the default), warn or indeterminate: the least that is an error
    policies, state     files or folders, one on each line, from the folder that the function is
                        run in: of the kustomization, or where kpt was called
    partial             "true": there are more node pools than the items and the state show
    kubernetesVersion, user, group
  What is not said there is taken from a .spotgate.yaml in that folder or above it.

examples:
  %(prog)s < resources.yaml > changed.yaml
  kustomize build --enable-alpha-plugins --enable-exec overlays/prod
  kpt fn eval --exec "%(prog)s" deploy/ -- mode=mutate state=cluster/

exit codes:
  0  no result is an error
  1  a result is an error
  2  it could not judge: what it was given is no ResourceList, an item can't be judged, the
     functionConfig, a policy or the state is wrong
"""

_GROUP: Final = "config.kubernetes.io"
_NO_OBJECT: Final = "not a Kubernetes object, which has `apiVersion` and `kind`; add them or remove the item"
_LISTS: Final = frozenset({"policies", "state", "group"})
_KEYS: Final = ("mode", "failOn", "policies", "state", "partial", "kubernetesVersion", "user", "group")
_FLAGS: Final = {"failOn": "fail-on", "kubernetesVersion": "kubernetes-version"}
_ORCHESTRATION: Final = ("internal.config.kubernetes.io/", "config.k8s.io/", "kustomize.config.k8s.io/")
_LEGACY_ORCHESTRATION: Final = frozenset(
    f"{_GROUP}/{name}" for name in ("path", "index", "id", "package", "merge-source")
)


def configure(parser: ArgumentParser) -> None:
    """There are no flags: orchestrators pass everything in the ResourceList."""


def run(_options: Namespace) -> int:
    """Judge and answer."""
    data = sys.stdin.buffer.read(LIMITS.size + 1)
    document, resources = _resource_list(data)
    config = _config(resources.get("functionConfig"))
    found = Manifests()
    court = Court(config)
    court.read([Source(STDIN, data=data)], found)
    found.problems += [each.problem((), _NO_OBJECT) for each in found.objects if _is_half_an_object(each)]
    found.objects = [_as_applied(each) for each in found.objects if not _is_half_an_object(each)]
    judged = court.prepare(found).judge()

    changed = deepcopy(resources)
    report = Report(document, resources, Outcome[config.fail_on.upper()])
    if config.mode != "validate":
        _patch(changed, judged.objects)
    report.add_patches(judged.objects, injected=config.mode != "validate")
    if config.mode != "mutate":
        report.add_findings(judged.objects)
    report.add_problems(judged.problems)
    if report.results:
        changed["results"] = [*(resources.get("results") or []), *msgspec.to_builtins(report.results)]
    _answer(data, document, changed)
    for line in report.lines:
        complain(line)
    if judged.problems:
        return CANNOT_JUDGE
    return FOUND if report.failed else FINE


def _resource_list(data: bytes) -> tuple[Document, dict[str, Any]]:
    """The one document of standard input, and its value.

    Raises:
        CannotJudgeError: it is no ResourceList.
    """
    try:
        documents = read_documents(data, STDIN)
    except DocumentError as error:
        raise CannotJudgeError(str(error)) from None
    match documents:
        case [document]:
            value: Any = document.value
        case _:
            raise CannotJudgeError(
                f"{STDIN}: expected one ResourceList, got {len(documents)} documents; kustomize and kpt make one; "
                "for plain manifests there is `spotgate check -`"
            )
    kind = (value.get("apiVersion"), value.get("kind")) if isinstance(value, dict) else (None, None)
    if not str(kind[0]).startswith(f"{_GROUP}/") or kind[1] != "ResourceList":
        text = "expected a ResourceList of config.kubernetes.io/v1; for plain manifests there is `spotgate check -`"
        raise CannotJudgeError(str(Problem(STDIN, *document.position(()), "", text)))
    for field in ("items", "results"):
        if not isinstance(value.get(field), list | None):
            raise CannotJudgeError(str(Problem(STDIN, *document.position((field,)), field, "is not a list")))
    return document, value


class _Parser(ArgumentParser):
    """Reads what the functionConfig says as the flags of ``check``."""

    def error(self, message: str) -> NoReturn:
        for key, flag in _FLAGS.items():
            message = message.replace(f"argument --{flag}", f"argument --{key}")
        raise CannotJudgeError(f"functionConfig: {message.replace('argument --', 'data.')}")


def _config(given: object) -> Namespace:
    """What the function is to do.

    Raises:
        CannotJudgeError: the functionConfig is wrong.
    """
    parser = _Parser(prog="spotgate fn", add_help=False, allow_abbrev=False)
    add_inputs(parser)
    parser.add_argument("--mode", choices=("both", "mutate", "validate"), default="both")
    parser.add_argument("--fail-on", choices=("deny", "warn", "indeterminate"))
    parser.set_defaults(operation=None)
    options = parser.parse_args([*_flags(given), STDIN])
    take_project_file(options)
    return options


def _flags(given: object) -> list[str]:
    if given is None:
        return []
    if not isinstance(given, dict) or (given.get("apiVersion"), given.get("kind")) != ("v1", "ConfigMap"):
        raise CannotJudgeError(f"functionConfig: expected a v1 ConfigMap with {', '.join(_KEYS)} in its data")
    data = given.get("data") or {}
    if not isinstance(data, dict):
        raise CannotJudgeError("functionConfig: data: expected a mapping")
    flags = []
    for key, text in data.items():
        if key not in _KEYS:
            meant = did_you_mean(key, _KEYS) or f"; there are {', '.join(_KEYS)}"
            raise CannotJudgeError(f"functionConfig: data.{key}: unknown{meant}")
        if not isinstance(text, str):
            raise CannotJudgeError(f"functionConfig: data.{key}: expected a string; write it in quotes")
        if key == "partial":
            if text not in ("true", "false"):
                raise CannotJudgeError(f'functionConfig: data.partial: expected "true" or "false", got {text!r}')
            flags += ["--partial"] if text == "true" else []
        elif key in _LISTS:
            flags += [f"--{key}={line.strip()}" for line in text.splitlines() if line.strip()]
        else:
            flags.append(f"--{_FLAGS.get(key, key)}={text.strip()}")
    return flags


def _is_half_an_object(manifest: Manifest) -> bool:
    """A ResourceList is read as any list of a kind is: what an item leaves out is taken from it."""
    return manifest.group == _GROUP or manifest.kind == "Resource"


def _as_applied(manifest: Manifest) -> Manifest:
    """The object as the API server gets it: without the annotations that orchestrators take off again."""
    annotations = manifest.metadata.get("annotations") or {}
    kept = {
        key: text
        for key, text in annotations.items()
        if not key.startswith(_ORCHESTRATION) and key not in _LEGACY_ORCHESTRATION
    }
    if len(kept) == len(annotations):
        return manifest
    return replace(manifest, value={**manifest.value, "metadata": {**manifest.metadata, "annotations": kept}})


def _patch(resources: dict[str, Any], objects: list[tuple[Manifest, Judgement]]) -> None:
    """Inject in the items, in place."""
    for _, judgement in objects:
        apply_json(judgement.patch, resources)


def _answer(data: bytes, document: Document, changed: dict[str, Any]) -> None:
    """Write the ResourceList as it was read, but for what was added.

    Raises:
        CannotJudgeError: it can't be changed in place.
    """
    try:
        text = edited(document.source, document.value, changed)
    except EditError as error:
        line = document.line + error.line
        raise CannotJudgeError(f"{STDIN}:{line}: can't be changed in place: {error.problem}; {error.fix}") from None
    before = data.decode("utf-8-sig")[: document.begin]
    sys.stdout.buffer.write(f"{before}{text.removesuffix(chr(10))}\n".encode())
