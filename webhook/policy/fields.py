"""Define fields that Kubernetes has too, with its own validation: what the API server rejects could never match.

Source: the validation of admissionregistration.k8s.io/v1 and of label selectors in Kubernetes 1.36.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from webhook.globs import is_glob
from webhook.kube.resources import built_in_resources, is_built_in, resource_of
from webhook.policy.errors import did_you_mean
from webhook.policy.schema_annotations import TextPattern

_DNS_LABEL: Final = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_DNS_SUBDOMAIN: Final = r"(?=[^/]{1,253}(/|$))[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"
_LABEL_NAME: Final = "[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_PLURAL: Final = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
"""The plural of a resource in the API server (a DNS-1035 label)."""
_VERSION: Final = "v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?"


def _no_group(group: str) -> str:
    name, slash, version = group.partition("/")
    if slash and re.fullmatch(_DNS_SUBDOMAIN, name):
        return f"{group!r} is a group with a version: write apiGroups: [{name}] and apiVersions: [{version}]"
    return (
        _no_core(group)
        or f"{group!r} is not an API group; write '' for the core group, '*' for all, or a name such as apps"
    )


def _no_group_of_kind(group: str) -> str:
    name, slash, _ = group.partition("/")
    if slash and re.fullmatch(_DNS_SUBDOMAIN, name):
        return f"{group!r} is a group with a version: write {name}"
    return _no_core(group) or f"{group!r} is not an API group; write '' for the core group, or a name such as apps"


def _no_core(group: str) -> str:
    if group == "core" or re.fullmatch(_VERSION, group):
        return f"{group!r} is not an API group; that of Pods, Namespaces and Nodes, the core group, is ''"
    return ""


def _no_version(version: str) -> str:
    return f"{version!r} is not an API version; write it without its group, as v1, or '*' for all"


def _no_kind_name(kind: str) -> str:
    return f"{kind!r} is not a kind; write the singular with its capitals, as Deployment"


def _no_resource(resource: str) -> str:
    return (
        f"{resource!r} is not a resource; write the plural in lower case, as pods, a subresource as deployments/scale, "
        "and '*' for a whole part"
    )


def _no_label_key(key: str) -> str:
    return f"{key!r} can't be the key of a label, so nothing would ever match"


def _no_label_value(value: str) -> str:
    return f"{value!r} can't be the value of a label, so nothing would ever match"


def _check_resource(resource: str) -> str:
    if not _PLURAL.fullmatch(resource):
        raise ValueError(f"{resource!r} is not a resource; write the plural in lower case, as nodepools")
    return resource


def _check_stars(words: tuple[str, ...]) -> tuple[str, ...]:
    if "*" in words and len(words) > 1:
        raise ValueError("'*' stands for all; leave out the others")
    return words


def _check_resources(resources: tuple[str, ...]) -> tuple[str, ...]:
    """Reject a resource that another one includes, as the API server does: webhook configurations are made of them."""
    for resource in resources:
        for other in resources:
            if other != resource and _is_named_by(resource, other):
                raise ValueError(f"'{other}' stands for {resource} too; leave that out")
    return resources


def _is_named_by(resource: str, wide: str) -> bool:
    name, slash, subresource = resource.partition("/")
    if wide in {"*", "*/*"}:
        return wide == "*/*" or not slash
    return bool(slash) and wide in {f"{name}/*", f"*/{subresource}"}


def check_kind(pattern: str) -> str:
    """Return a valid glob for kinds, written ``Kind.group``. Raise ValueError if it could match nothing."""
    kind, _, group = pattern.partition(".")
    is_plural = re.match(r"[a-z0-9-]+\.", pattern) is not None
    is_unknown = not is_glob(pattern) and is_built_in(group) and resource_of(group, kind) is None
    if "/" in pattern or is_plural or is_unknown:
        raise ValueError(_no_kind(pattern))
    return pattern


def _no_kind(pattern: str) -> str:
    if "/" in pattern:
        group, _, kind = pattern.rpartition("/")
        return f"{pattern!r} would match nothing; write the kind first: {kind}.{group}"
    kind, _, group = pattern.partition(".")
    if not is_built_in(group):
        return f"{pattern!r} would match nothing: write the singular with its capitals, as JobSet.jobset.x-k8s.io"
    where = f"API group {group}" if group else "the core group"
    hint = _meant(kind, group) or "; write Kind.group, as Deployment.apps"
    return f"{pattern!r} would match nothing: Kubernetes has no kind {kind} in {where}{hint}"


def _meant(kind: str, group: str) -> str:
    """Suggest the built-in kind that may be meant: by letter case, plural, group or a typing error."""
    known = [each for of in dict.fromkeys((group, "apps", "batch", "")) for each in built_in_resources(of)]
    names = {f"{each.kind}.{each.group}".rstrip("."): each for each in known}
    for name, each in names.items():
        if kind.lower() in {each.kind.lower(), each.plural}:
            return f", did you mean `{name}`?"
    return did_you_mean(f"{kind}.{group}", names)


_STAR_ALONE: Final = AfterValidator(_check_stars)
_NO_CORE: Final = rf"(?!(core|{_VERSION})$)"
_Group = Annotated[
    str,
    TextPattern(rf"{_NO_CORE}({_DNS_SUBDOMAIN}|\*|)", "'' for the core group, '*', or a name as apps", _no_group),
    Field(examples=["", "apps", "batch"]),
]
_Version = Annotated[str, TextPattern(rf"{_DNS_LABEL}|\*", "a version without its group, as v1, or '*'", _no_version)]
_Resource = Annotated[
    str,
    TextPattern(
        rf"({_DNS_SUBDOMAIN}|\*)(/({_DNS_SUBDOMAIN}|\*))?",
        "a plural in lower case, as pods or deployments/scale, or '*' for a whole part",
        _no_resource,
    ),
    Field(examples=["pods", "deployments", "nodepools/scale"]),
]

ApiGroup = Annotated[
    str,
    TextPattern(rf"{_NO_CORE}({_DNS_SUBDOMAIN}|)", "'' for the core group, or a name as apps", _no_group_of_kind),
]
"""The API group of a kind, without its version."""
KindName = Annotated[
    str, TextPattern("[A-Z][A-Za-z0-9]*", "a singular with its capitals, as Deployment", _no_kind_name)
]
ApiGroups = Annotated[tuple[_Group, ...], _STAR_ALONE]
ApiVersions = Annotated[tuple[_Version, ...], _STAR_ALONE]
ResourceName = Annotated[str, AfterValidator(_check_resource)]
ResourceNames = Annotated[tuple[_Resource, ...], AfterValidator(_check_resources)]
Operations = Annotated[tuple[Literal["CREATE", "UPDATE", "DELETE", "CONNECT", "*"], ...], _STAR_ALONE]
LabelKey = Annotated[str, TextPattern(f"({_DNS_SUBDOMAIN}/)?{_LABEL_NAME}", "the key of a label", _no_label_key)]
LabelValue = Annotated[str, TextPattern(f"({_LABEL_NAME})?", "the value of a label", _no_label_value)]
