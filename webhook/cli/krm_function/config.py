"""The functionConfig of ``spotgate fn``: a ConfigMap whose data are read as the flags of ``check``."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import TYPE_CHECKING, Final, NoReturn

from webhook.cli.exits import CannotJudgeError
from webhook.cli.judging.project import take_project_file
from webhook.cli.options import add_inputs
from webhook.manifests.files import STDIN
from webhook.policy.errors import did_you_mean

if TYPE_CHECKING:
    from argparse import Namespace

_LISTS: Final = frozenset({"policies", "state", "group"})
_KEYS: Final = ("mode", "failOn", "policies", "state", "partial", "kubernetesVersion", "user", "group")
_FLAGS: Final = {"failOn": "fail-on", "kubernetesVersion": "kubernetes-version"}


class _Parser(ArgumentParser):
    """Reads data of the functionConfig as flags, and names the field in errors."""

    def error(self, message: str) -> NoReturn:
        for key, flag in _FLAGS.items():
            message = message.replace(f"argument --{flag}", f"argument --{key}")
        raise CannotJudgeError(f"functionConfig: {message.replace('argument --', 'data.')}")


def options_of(given: object) -> Namespace:
    """Return the functionConfig as options.

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
