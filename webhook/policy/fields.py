"""Fields that Kubernetes itself has, held to what its API server accepts: what it refuses could never match.

Source: the validation of admissionregistration.k8s.io/v1 and of label selectors in Kubernetes 1.36.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator

from webhook.globs import is_glob
from webhook.kube.resources import built_in_resources, is_built_in, resource_of
from webhook.policy.errors import did_you_mean

_DNS_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_DNS_SUBDOMAIN: Final = re.compile(r"(?=.{1,253}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_LABEL_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_VERSION: Final = re.compile(r"v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?")


def _check_group(group: str) -> str:
    if group == "core" or _VERSION.fullmatch(group):
        raise ValueError(f"{group!r} is no API group; that of Pods, Namespaces and Nodes, the core group, is ''")
    if group in {"", "*"} or _DNS_SUBDOMAIN.fullmatch(group):
        return group
    name, slash, version = group.partition("/")
    if slash and _DNS_SUBDOMAIN.fullmatch(name):
        raise ValueError(f"{group!r} is a group with a version: write apiGroups: [{name}] and apiVersions: [{version}]")
    raise ValueError(f"{group!r} is no API group; write '' for the core group, '*' for all, or a name such as apps")


def _check_version(version: str) -> str:
    if version == "*" or _DNS_LABEL.fullmatch(version):
        return version
    raise ValueError(f"{version!r} is no API version; write it without its group, as v1, or '*' for all")


def _check_resource(resource: str) -> str:
    parts = resource.split("/")
    if len(parts) <= 2 and all(part == "*" or _DNS_SUBDOMAIN.fullmatch(part) for part in parts):  # noqa: PLR2004
        return resource
    raise ValueError(
        f"{resource!r} is no resource; write the plural in lower case, as pods, a subresource as deployments/scale, "
        "and '*' for a whole part"
    )


def _check_stars(words: tuple[str, ...]) -> tuple[str, ...]:
    if "*" in words and len(words) > 1:
        raise ValueError("'*' stands for all; leave out the others")
    return words


def _check_resources(resources: tuple[str, ...]) -> tuple[str, ...]:
    """As the API server has it, for the webhook configuration is made of them."""
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


def _check_label_key(key: str) -> str:
    """The key of a label, as Kubernetes has it."""
    prefix, slash, name = key.rpartition("/")
    if _LABEL_NAME.fullmatch(name) and (not slash or _DNS_SUBDOMAIN.fullmatch(prefix)):
        return key
    raise ValueError(f"{key!r} can't be the key of a label, so nothing would ever match")


def _check_label_value(value: str) -> str:
    """The value of a label, as Kubernetes has it."""
    if not value or _LABEL_NAME.fullmatch(value):
        return value
    raise ValueError(f"{value!r} can't be the value of a label, so nothing would ever match")


def check_kind(pattern: str) -> str:
    """A glob of kinds of objects, as ``Kind.group``."""
    group, slash, kind = pattern.rpartition("/")
    if slash:
        raise ValueError(f"{pattern!r} would match nothing; write the kind first: {kind}.{group}")
    kind, _, group = pattern.partition(".")
    if not is_glob(pattern) and is_built_in(group) and resource_of(group, kind) is None:
        where = f"API group {group}" if group else "the core group"
        hint = _meant(kind, group) or "; write Kind.group, as Deployment.apps"
        raise ValueError(f"{pattern!r} would match nothing: Kubernetes has no kind {kind} in {where}{hint}")
    return pattern


def _meant(kind: str, group: str) -> str:
    """Which built-in kind that may be: written in lower case, as a plural, in another group, or with a typing error."""
    known = [each for of in dict.fromkeys((group, "apps", "batch", "")) for each in built_in_resources(of)]
    names = {f"{each.kind}.{each.group}".rstrip("."): each for each in known}
    for name, each in names.items():
        if kind.lower() in {each.kind.lower(), each.plural}:
            return f", did you mean `{name}`?"
    return did_you_mean(f"{kind}.{group}", names)


ApiGroups = Annotated[tuple[Annotated[str, AfterValidator(_check_group)], ...], AfterValidator(_check_stars)]
ApiVersions = Annotated[tuple[Annotated[str, AfterValidator(_check_version)], ...], AfterValidator(_check_stars)]
Resources = Annotated[tuple[Annotated[str, AfterValidator(_check_resource)], ...], AfterValidator(_check_resources)]
Operations = Annotated[tuple[Literal["CREATE", "UPDATE", "DELETE", "CONNECT", "*"], ...], AfterValidator(_check_stars)]
LabelKey = Annotated[str, AfterValidator(_check_label_key)]
LabelValue = Annotated[str, AfterValidator(_check_label_value)]
