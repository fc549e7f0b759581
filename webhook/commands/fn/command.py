"""Run as a KRM function that kustomize and kpt call with rendered objects: ``spotgate fn``.

Evaluate and change the objects of a ResourceList, as a KRM function in kustomize or kpt.

Reads a ResourceList on standard input, and writes it to standard output with the injected fields
and the findings as results. Findings also go to standard error. A ConfigMap as functionConfig
replaces the flags of `spotgate check`. .spotgate.yaml applies, too.

data of the functionConfig:
  mode               mutate: inject only; validate: report only; both: the default
  failOn             deny (the default), warn, or indeterminate: the lowest outcome that is an error
  policies, state    files or folders, one on each line; kustomize runs in the kustomization's folder
  partial            "true": the cluster has more node pools than the items and the state
  kubernetesVersion  of the API server and the kubelets
  user, group        who sends the request; groups one on each line

examples:
  %(prog)s < resources.yaml > changed.yaml
  kustomize build --enable-alpha-plugins --enable-exec overlays/prod
  kpt fn eval --exec "%(prog)s" deploy/ -- mode=mutate state=cluster/

exit codes:
  0  no result is an error
  1  a result is an error
  2  the input, an item, the functionConfig, a policy, or the state is invalid
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from copy import deepcopy
from itertools import chain
from typing import TYPE_CHECKING, Final, NoReturn

from webhook.base.exits import CANNOT_JUDGE, FINE, FOUND, CannotJudgeError
from webhook.base.terminal import complain
from webhook.commands.fn.krm_function import ResourceList, failures, findings, injections
from webhook.commands.shared.flags import add_inputs
from webhook.commands.shared.help import help_of
from webhook.commands.shared.options import judging_options
from webhook.inputs.files import STDIN
from webhook.judging.session import Session
from webhook.model.decision import Outcome
from webhook.model.patch import apply_json
from webhook.policy.errors import did_you_mean

if TYPE_CHECKING:
    from webhook.inputs.options import JudgingOptions

DESCRIPTION, EPILOG = help_of(__doc__)


def configure(parser: ArgumentParser) -> None:
    """Add no flags: orchestrators pass the configuration in the ResourceList."""
    del parser


def run(_options: Namespace) -> int:
    """Evaluate the items and write the resulting ResourceList."""
    resources = ResourceList()
    mode, options = _configured(resources.value.get("functionConfig"))
    judged = Session(options).judge(resources.items())
    changed = deepcopy(resources.value)
    injects = mode != "validate"
    complete = [(manifest, judgement) for manifest, judgement in judged.objects if judgement.problem is None]
    if injects:
        for _, judgement in complete:
            apply_json(judgement.patch, changed)
    results = [
        *injections(resources, complete, injected=injects),
        *(findings(resources, judged.objects, Outcome[options.fail_on.upper()]) if mode != "mutate" else ()),
        *failures(resources, judged.problems),
    ]
    if results:
        changed["results"] = [*(resources.value.get("results") or []), *(result for result, _ in results)]
    resources.answer(changed)
    for line in chain.from_iterable(lines for _, lines in results):
        complain(line)
    if judged.problems:
        return CANNOT_JUDGE
    return FOUND if any(result["severity"] == "error" for result, _ in results) else FINE


_LISTS: Final = frozenset({"policies", "state", "group"})
_KEYS: Final = ("mode", "failOn", "policies", "state", "partial", "kubernetesVersion", "user", "group")
_FLAGS: Final = {"failOn": "fail-on", "kubernetesVersion": "kubernetes-version"}


class _Parser(ArgumentParser):
    """A parser of the functionConfig's data as flags. Its errors name the field."""

    def error(self, message: str) -> NoReturn:
        for key, flag in _FLAGS.items():
            message = message.replace(f"argument --{flag}", f"argument --{key}")
        raise CannotJudgeError(f"functionConfig: {message.replace('argument --', 'data.')}")


def _configured(given: object) -> tuple[str, JudgingOptions]:
    """Return the mode and the options from the functionConfig. Raise CannotJudgeError if it is invalid."""
    parser = _Parser(prog="spotgate fn", add_help=False, allow_abbrev=False)
    add_inputs(parser)
    parser.add_argument("--mode", choices=("both", "mutate", "validate"), default="both")
    parser.add_argument("--fail-on", choices=("deny", "warn", "indeterminate"), default="")
    parser.set_defaults(operation=None)
    namespace = parser.parse_args([*_flags(given), STDIN])
    return namespace.mode, judging_options(namespace)


def _flags(given: object) -> list[str]:
    if given is None:
        return []
    if not isinstance(given, dict) or (given.get("apiVersion"), given.get("kind")) != ("v1", "ConfigMap"):
        raise CannotJudgeError(f"functionConfig: expected a v1 ConfigMap with {', '.join(_KEYS)} in its data")
    data = given.get("data") or {}
    if not isinstance(data, dict):
        raise CannotJudgeError("functionConfig: data: expected a map")
    flags = []
    for key, text in data.items():
        if key not in _KEYS:
            meant = did_you_mean(key, _KEYS) or f"; there are {', '.join(_KEYS)}"
            raise CannotJudgeError(f"functionConfig: data.{key}: unknown{meant}")
        if not isinstance(text, str):
            raise CannotJudgeError(f"functionConfig: data.{key}: expected text; write it in quotes")
        if key == "partial":
            if text not in ("true", "false"):
                raise CannotJudgeError(f'functionConfig: data.partial: expected "true" or "false", got {text!r}')
            flags += ["--partial"] if text == "true" else []
        elif key in _LISTS:
            flags += [f"--{key}={line.strip()}" for line in text.splitlines() if line.strip()]
        else:
            flags.append(f"--{_FLAGS.get(key, key)}={text.strip()}")
    return flags
