"""``spotgate fn``: a KRM function, which kustomize and kpt run on the objects that they have rendered."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.cli.exits import CANNOT_JUDGE, FINE, FOUND
from webhook.cli.judging.session import Session
from webhook.cli.krm_function.config import options_of
from webhook.cli.krm_function.resource_list import ResourceList
from webhook.cli.krm_function.results import FunctionResults
from webhook.cli.terminal import complain
from webhook.decision import Outcome
from webhook.patch import apply_json

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

DESCRIPTION: Final = """\
Judge and change the objects of a ResourceList, as a KRM function in kustomize or kpt.

Reads a ResourceList on standard input and writes one on standard output: with what the webhook
would inject in its items, and with what it would say as results. Findings are on standard error
too, since kustomize does not show results. Comments and the order of fields stay.

The functionConfig is a ConfigMap, whose data mean what the flags of `spotgate check` mean. What is
not said there is taken from a .spotgate.yaml in the folder that the function is run in, or above it.
"""

EPILOG: Final = """\
data of the functionConfig:
  mode               mutate: inject, report no findings; validate: report, change nothing; both:
                     the default
  failOn             deny (the default), warn or indeterminate: lowest outcome that is an error
  policies, state    files or folders, one on each line, from the folder that the function is run
                     in: kustomize runs it in that of the kustomization, kpt where it was called
  partial            "true": there are more node pools than the items and the state show
  kubernetesVersion  of the API server and the kubelets
  user, group        who makes the request; of groups one on each line

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


def configure(parser: ArgumentParser) -> None:
    """Declare no flags: orchestrators pass everything in the ResourceList."""
    del parser


def run(_options: Namespace) -> int:
    """Judge the items and answer with a ResourceList."""
    resources = ResourceList()
    options = options_of(resources.value.get("functionConfig"))
    judged = Session(options).prepare(resources.items()).judge()
    changed = deepcopy(resources.value)
    injects = options.mode != "validate"
    if injects:
        for _, judgement in judged.objects:
            apply_json(judgement.patch, changed)
    report = FunctionResults(resources.document, resources.value, Outcome[options.fail_on.upper()])
    report.add_patches(judged.objects, injected=injects)
    if options.mode != "mutate":
        report.add_findings(judged.objects)
    report.add_problems(judged.problems)
    if report.results:
        changed["results"] = [*(resources.value.get("results") or []), *msgspec.to_builtins(report.results)]
    resources.answer(changed)
    for line in report.lines:
        complain(line)
    if judged.problems:
        return CANNOT_JUDGE
    return FOUND if report.failed else FINE
