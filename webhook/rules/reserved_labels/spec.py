"""Define the ``spec`` of ReservedLabels."""

from typing import Annotated, Final

from webhook.policy.common import Glob, Model, NonEmpty, PolicySpec
from webhook.policy.schema_annotations import Field, TextPattern

_DOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+"


Domain = Annotated[str, TextPattern(_DOMAIN, "a lowercase domain, such as acme.example")]


class AllowedLabelsSpec(Model):
    """Labels that users may set although their domain is reserved."""

    resources: Annotated[tuple[NonEmpty, ...], Field(min_length=1)]
    """Plural resource names. `pods` includes pod templates and their workloads."""
    labels: Annotated[tuple[Glob, ...], Field(min_length=1)]
    """Label keys (globs)."""
    warning: str = ""
    """Why they may be rejected, as a sentence. spotgate warns about them."""


class ReservedLabelsSpec(PolicySpec):
    """Rejects user-provided labels in reserved domains."""

    domains: Annotated[tuple[Domain, ...], Field(min_length=1, examples=[["example.com"]])]
    """Reserved domains, with their subdomains."""
    allow: tuple[AllowedLabelsSpec, ...] = ()
    """Exceptions."""
    hints: dict[NonEmpty, NonEmpty] = {}
    """Misspelled key -> correct key. spotgate finds similar keys without hints."""
