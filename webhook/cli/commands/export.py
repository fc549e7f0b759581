"""``spotgate export vap``: print policies as ValidatingAdmissionPolicies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from webhook.bundle import OWN_NAMESPACE
from webhook.cli.exits import FINE, CannotJudgeError
from webhook.cli.export.admission_policies.export import export
from webhook.cli.options import add_policies, read_policies, resource_name
from webhook.cli.terminal import complain
from webhook.context import utc_now
from webhook.documents.yaml_writer import UNBROKEN, dump_documents
from webhook.lint import too_wide
from webhook.text import printable

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

DESCRIPTION: Final = """\
Print the policies that need no look-up as ValidatingAdmissionPolicies, each with its binding: the
API server judges by them itself, so that they hold while the webhook is down.

They deny nothing that spotgate lets through. What Kubernetes can't be told of a policy is let
through by them; standard error says what that is, and why, and so does the head of the output.
"""

EPILOG: Final = """\
examples:
  %(prog)s vap | kubectl apply -f -
  %(prog)s vap --policies policies/ > validating-admission-policies.yaml

exit codes:
  0  printed
  2  a policy is invalid or matches every resource
"""


def configure(parser: ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("what", choices=("vap",), help="ValidatingAdmissionPolicies, for Kubernetes 1.30 and later")
    add_policies(parser)
    parser.add_argument(
        "--namespace",
        metavar="NAME",
        type=resource_name,
        default=OWN_NAMESPACE,
        help="where spotgate is, which they leave alone; default: %(default)s",
    )


def run(options: Namespace) -> int:
    """Print the policies that are exported, and say what is left out."""
    bundle = read_policies(options.policies, own_namespace=options.namespace)
    if problems := list(too_wide(bundle)):
        raise CannotJudgeError("\n".join(map(str, problems)))
    exported, left_out = export(bundle, utc_now().date())
    print(f"# Exported by `spotgate export vap` from policies {bundle.hash}.")
    for problem in left_out:
        where = f" ({problem.field})" if problem.field else ""
        complain(str(problem))
        print(printable(f"# Not as the webhook has it: {problem.text}{where}"))
    print(dump_documents(exported, width=UNBROKEN), end="")
    return FINE
