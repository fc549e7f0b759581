"""Fields that also exist in Kubernetes, with the same validation: a value that the API server rejects can't match.

Source: the validation of admissionregistration.k8s.io/v1 and of label selectors in Kubernetes 1.36.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from webhook.base.globs import is_glob
from webhook.kube.resources import BUILT_IN_GROUPS, built_in_resources, resource_of
from webhook.policy.errors import did_you_mean
from webhook.policy.schema_annotations import Check, Field, TextPattern

_DNS_LABEL: Final = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_DNS_SUBDOMAIN: Final = r"(?=[^/]{1,253}(/|$))[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"
_LABEL_NAME: Final = "[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_PLURAL: Final = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
"""The plural name of a resource in the API server (a DNS-1035 label)."""
_VERSION: Final = "v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?"


def _check_resource(resource: str) -> str:
    if not _PLURAL.fullmatch(resource):
        raise ValueError(f"{resource!r} is not a resource; write the lowercase plural, such as nodepools")
    return resource


def _check_stars(words: tuple[str, ...]) -> tuple[str, ...]:
    if "*" in words and len(words) > 1:
        raise ValueError("'*' means all; remove the other items")
    return words


def check_kind(pattern: str) -> str:
    """Return a valid glob for kinds, in the form ``Kind.group``. Raise ValueError if it can't match any kind."""
    kind, _, group = pattern.partition(".")
    is_plural = re.match(r"[a-z0-9-]+\.", pattern) is not None
    is_unknown = not is_glob(pattern) and group in BUILT_IN_GROUPS and resource_of(group, kind) is None
    if "/" in pattern or is_plural or is_unknown:
        known = (resource for api_group in ("apps", "batch", "") for resource in built_in_resources(api_group))
        hint = did_you_mean(pattern, [f"{resource.kind}.{resource.group}".rstrip(".") for resource in known])
        raise ValueError(f"{pattern!r} would match nothing; write Kind.group, such as Deployment.apps{hint}")
    return pattern


_STAR_ALONE: Final = Check(_check_stars)
_NOT_EMPTY: Final = Field(min_length=1)
_NO_CORE: Final = rf"(?!(core|{_VERSION})$)"
_Group = Annotated[
    str,
    TextPattern(rf"{_NO_CORE}({_DNS_SUBDOMAIN}|\*|)", "'' for the core group, '*', or a name such as apps"),
    Field(examples=["", "apps", "batch"]),
]
_Version = Annotated[str, TextPattern(rf"{_DNS_LABEL}|\*", "a version without its group, such as v1, or '*'")]
_Resource = Annotated[
    str,
    TextPattern(
        rf"({_DNS_SUBDOMAIN}|\*)(/({_DNS_SUBDOMAIN}|\*))?",
        "a lowercase plural, such as pods or deployments/scale, or '*' for either part",
    ),
    Field(examples=["pods", "deployments", "nodepools/scale"]),
]

ApiGroup = Annotated[
    str,
    TextPattern(rf"{_NO_CORE}({_DNS_SUBDOMAIN}|)", "'' for the core group, or a name such as apps"),
]
"""The API group of a kind, without its version."""
KindName = Annotated[str, TextPattern("[A-Z][A-Za-z0-9]*", "a singular in CamelCase, such as Deployment")]
ApiGroups = Annotated[tuple[_Group, ...], _NOT_EMPTY, _STAR_ALONE]
ApiVersions = Annotated[tuple[_Version, ...], _NOT_EMPTY, _STAR_ALONE]
ResourceName = Annotated[str, Check(_check_resource)]
ResourceNames = Annotated[tuple[_Resource, ...], _NOT_EMPTY]
Operations = Annotated[tuple[Literal["CREATE", "UPDATE", "DELETE", "CONNECT", "*"], ...], _NOT_EMPTY, _STAR_ALONE]
LabelKey = Annotated[str, TextPattern(f"({_DNS_SUBDOMAIN}/)?{_LABEL_NAME}", "the key of a label")]
LabelValue = Annotated[str, TextPattern(f"({_LABEL_NAME})?", "the value of a label")]
