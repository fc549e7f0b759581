"""Write CEL for Kubernetes 1.30 and later: globs, label selectors, field paths, and the parts of ``matchConditions``.

The API server skips a webhook with failurePolicy Ignore if a condition fails or exceeds the cost limit, so no condition
may. Read members with ``.?``. Large maps and long keys make a condition true without a search, because the cost of
`contains` grows with the length.

Source: https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#matching-requests-matchconditions;
    k8s.io/apiserver, pkg/apis/cel/config.go (1,000,000 for an expression, 2,500,000 for all of a webhook)
"""

from __future__ import annotations

import json
import re
from textwrap import indent
from typing import TYPE_CHECKING, Any, Final

from webhook.base.globs import is_glob
from webhook.engine.enforcement import BUILT_IN_CONTROLLERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from webhook.policy.common import LabelSelectorSpec
    from webhook.rules.protocol import Keys

JSON = dict[str, Any]

_TOKEN: Final = re.compile(r"\[(?P<no>!?)(?P<set>[^]!][^]]*|][^]]*)\]|(?P<other>.)", re.DOTALL)
_WILD: Final = {"*": ".*", "?": "."}
_SCALARS: Final = ({str}, {int}, {bool}, {float})


def quoted(text: str) -> str:
    """Return a text as a CEL string literal."""
    escaped = json.dumps(text, ensure_ascii=False)[1:-1].replace('\\"', '"').replace("'", "\\'")
    return f"'{escaped}'"


def literal(value: Any) -> str:
    """Return a JSON value as a CEL literal. Wrap mixed types in ``dyn``: Kubernetes rejects lists and maps of them."""
    if isinstance(value, str):
        return quoted(value)
    if not isinstance(value, dict | list):
        return json.dumps(value)
    items = value if isinstance(value, list) else list(value.values())
    alike = {type(item) for item in items} in _SCALARS
    written = [literal(item) if alike else f"dyn({literal(item)})" for item in items]
    if isinstance(value, list):
        return f"[{', '.join(written)}]"
    return "{" + ", ".join(f"{quoted(key)}: {text}" for key, text in zip(value, written, strict=True)) + "}"


def any_glob_matches(value: str, globs: Iterable[str]) -> str:
    """Return an expression that is true if one of the globs matches the string expression ``value``."""
    patterns = list(dict.fromkeys(globs))
    exact = [glob for glob in patterns if not is_glob(glob)]
    wild = "|".join(_TOKEN.sub(_as_regex, glob) for glob in patterns if is_glob(glob))
    parts = [f"{value} in {literal(exact)}"] if exact else []
    parts += [f"{value}.matches({quoted(f'(?s)^({wild})$')})"] if wild else []
    return parts[0] if len(parts) == 1 else f"({' || '.join(parts)})"


def _as_regex(token: re.Match[str]) -> str:
    """Translate a part of a glob into an RE2 expression."""
    if other := token["other"]:
        return _WILD.get(other) or re.escape(other)
    inside = re.sub(r"[\\\[\]^]", r"\\\g<0>", token["set"])
    return f"[{'^' if token['no'] else ''}{inside}]"


def selects(selector: LabelSelectorSpec, labels: str) -> str:
    """Return an expression that is true if the label selector selects ``labels``."""
    equal = [("In", key, [value]) for key, value in selector.match_labels.items()]
    all_of = [*equal, *((term.operator, term.key, list(term.values)) for term in selector.match_expressions)]
    return " && ".join(_requirement(*requirement, labels) for requirement in all_of) or "true"


def _requirement(operator: str, key: str, values: Sequence[str], labels: str) -> str:
    there = f"{quoted(key)} in {labels}"
    one_of = f"{there} && {labels}[{quoted(key)}] in {literal(values)}"
    return {"In": one_of, "NotIn": f"!({one_of})", "Exists": there, "DoesNotExist": f"!({there})"}[operator]


class Fields:
    """CEL variables that read fields of an object of any type: name -> expression, each after those that it reads."""

    def __init__(self) -> None:
        self.variables: dict[str, str] = {}

    def value(self, path: Sequence[str], *, old: bool = False) -> str:
        """Return an expression for the value at this path, or null if the value or the old object doesn't exist.

        A path through a value that isn't a map yields null, as in rules. In plain CEL it would be an error.
        """
        name = ("old_" if old else "") + "_".join(path)
        if name not in self.variables:
            *parents, last = path
            member = f".?{last}.orValue(null)"
            if parents:
                parent = self.value(parents, old=old)
                text = f"type({parent}) == map ? {parent}{member} : null"
            else:
                text = f"oldObject == null ? null : dyn(oldObject){member}" if old else f"dyn(object){member}"
            self.variables[name] = text
        return f"variables.{name}"

    def map(self, path: Sequence[str], *, old: bool = False) -> str:
        """Return an expression for the map at this path, or an empty map if there is none."""
        value = self.value(path, old=old)
        return f"(type({value}) == map ? {value} : {{}})"


def policy_and_binding(kind: str, name: str, spec: JSON, binding: JSON) -> Iterator[JSON]:
    """Yield an admission policy and its binding. ``spec`` has match conditions and variables as maps, by name."""
    labels = {"app.kubernetes.io/name": "spotgate", "app.kubernetes.io/component": "exported-policy"}
    written = {
        member: [{"name": key, "expression": text} for key, text in value.items()]
        if member in {"matchConditions", "variables"}
        else value
        for member, value in spec.items()
    }
    for its_kind, its_spec in ((kind, written), (f"{kind}Binding", {"policyName": name, **binding})):
        yield {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": its_kind,
            "metadata": {"name": name, "labels": labels},
            "spec": its_spec,
        }


MEMBERS_AT_MOST: Final = 64
"""Members of a map that are tested one by one. Users write about a dozen. A key costs about 120, so a map 8,000."""
KEY_LENGTH_AT_MOST: Final = 128
"""Characters of a key that is tested. Kubernetes allows 317, and users write about 40."""

RESOURCE: Final = "request.resource.group + '/' + request.resource.resource"
SUBRESOURCE: Final = "request.?subResource.orValue('')"
REFERENCE: Final = f"{RESOURCE} + '/' + {SUBRESOURCE}"
"""The expression for the `reference` of the request's resource."""

CONTROLLERS_POD: Final = (
    f"{REFERENCE} == '/pods/' && request.operation == 'CREATE' && "
    f"request.userInfo.?username.orValue('') in {literal(sorted(BUILT_IN_CONTROLLERS))}"
)
"""The expression for `webhook.engine.enforcement.is_controllers_pod`."""


def reference(group: str, path: str) -> str:
    """Return the text that identifies a resource, such as ``apps/deployments/``, or a subresource."""
    resource, _, subresource = path.partition("/")
    return f"{group}/{resource}/{subresource}"


def any_of(lines: Iterable[str]) -> str:
    """Join expressions with ``||``, one on each line."""
    return " ||\n".join(lines)


def block(before: str, lines: Iterable[str]) -> str:
    """Join expressions with ``||``, and close the parenthesis that ``before`` opens."""
    return f"{before}\n{indent(any_of(lines), '  ')}\n)"


def has_keys(map_: str, keys: Keys) -> Iterator[str]:
    """Yield expressions that are true if a map of strings has one of the keys or too many members to search."""
    yield from (f"{quoted(key)} in {map_}" for key in sorted(keys.exact))
    if keys.containing:
        yield f"{map_}.size() > {MEMBERS_AT_MOST}"
        yield f"{map_}.exists(key, {contains_any('key', keys.containing, KEY_LENGTH_AT_MOST)})"


def changes_annotations(keys: Keys, *, at_most: int = MEMBERS_AT_MOST) -> Iterator[str]:
    """Yield expressions that are true if an UPDATE changes an annotation with one of the keys.

    Removing an annotation counts only if its key is in ``exact``.
    """
    new = "object.?metadata.?annotations"
    differs = f"{new}[?key] != oldObject.?metadata.?annotations[?key]"
    if keys.exact:
        yield f"{literal(sorted(keys.exact))}.exists(key, {differs})"
    if keys.containing:
        yield f"{new}.orValue({{}}).size() > {at_most}"
        contains = contains_any("key", keys.containing, KEY_LENGTH_AT_MOST)
        yield f"{new}.orValue({{}}).exists(key, ({contains}) && {differs})"


def contains_any(value: str, texts: Iterable[str], at_most: int) -> str:
    """Return an expression that is true if a text contains one of these texts, or is too long to search."""
    return " || ".join(
        [f"{value}.size() > {at_most}", *(f"{value}.contains({quoted(text)})" for text in sorted(texts))]
    )
