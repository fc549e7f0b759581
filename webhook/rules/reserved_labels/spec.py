"""Define the ``spec`` of ReservedLabels."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import Field

from webhook.policy.common import Glob, Model, NonEmpty, PolicySpec
from webhook.policy.schema_annotations import TextPattern

_DOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+"


def _no_domain(text: str) -> str:
    meant = text.strip().lower()
    if re.fullmatch(_DOMAIN, meant):
        return f"{text!r} is no domain, which has neither capitals nor white space: write {meant}"
    return f"{text!r} is no domain: write it alone, as coreweave.com; what is below it is reserved with it"


Domain = Annotated[str, TextPattern(_DOMAIN, "a domain alone, as acme.example", _no_domain)]


class AllowedLabelsSpec(Model):
    """Labels that users may set although their domain is reserved."""

    resources: tuple[NonEmpty, ...] = Field(
        min_length=1, description="Plural resource names; 'pods' are pod templates and their workloads, too."
    )
    labels: tuple[Glob, ...] = Field(min_length=1, description="Label keys (globs).")


class ReservedLabelsSpec(PolicySpec):
    """Rejects user-provided labels in reserved domains."""

    domains: tuple[Domain, ...] = Field(
        min_length=1,
        examples=[["example.com"]],
        description="Reserved domains. A key is reserved when its prefix is the domain or a subdomain of it.",
    )
    allow: tuple[AllowedLabelsSpec, ...] = Field(default=(), description="What may be set all the same.")
    hints: dict[NonEmpty, NonEmpty] = Field(
        default={}, description="Typical misspellings: misspelt key -> right key. Similar keys are found without."
    )
