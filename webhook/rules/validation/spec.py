"""Define the ``spec`` of Validation, with the field names of a ValidatingAdmissionPolicy."""

from typing import Annotated, Any, Final, Literal

from webhook.policy.common import NOT_BLANK, Model, PolicySpec
from webhook.policy.schema_annotations import Field, TextPattern

_AT_MOST: Final = 100
"""Validations, and variables, of one policy. All are compiled before the policy takes effect."""


ExpressionText = Annotated[str, TextPattern(NOT_BLANK, "a CEL expression")]
MessageLine = Annotated[str, TextPattern(r"\s*(\S([^\n\r]*\S)?)?\s*", "one line")]
Identifier = Annotated[
    str, TextPattern(r"[A-Za-z_][A-Za-z0-9_]{0,62}", "up to 63 letters, digits, and '_', such as gpuCount")
]


class ValidationItem(Model):
    """One validation: a condition, and the message if it is false."""

    expression: ExpressionText
    """A CEL expression that is true for valid objects."""
    message: MessageLine = ""
    """The message if the expression is false. Default: `failed expression: ...`."""
    message_expression: str = ""
    """A CEL expression that returns the message. If it fails, is empty, or contains line breaks, `message` is used."""
    reason: Literal["Unauthorized", "Forbidden", "Invalid", "RequestEntityTooLarge"] | None = None
    """The reason for `spotgate export vap`. The webhook always answers Forbidden."""

    def check(self) -> None:
        """Raise ValueError if the fields contradict each other."""
        if "\n" in self.expression.strip() and not self.message.strip():
            raise ValueError("an expression with line breaks needs a `message`, as in Kubernetes")


class NamedExpression(Model):
    """A condition with a name."""

    name: Annotated[
        str,
        TextPattern(r"[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?", "letters, digits, '-', '_', '.', and '/'"),
        Field(max_length=316),
    ]
    """The name in findings and `explain`."""
    expression: ExpressionText
    """A CEL expression. If it is false, the policy doesn't apply."""


class Variable(Model):
    """A named value."""

    name: Identifier
    """The name, for `variables.<name>`."""
    expression: ExpressionText
    """A CEL expression, evaluated on first use."""


class ValidationSpec(PolicySpec):
    """A team's own rule in CEL, with the fields of a ValidatingAdmissionPolicy."""

    validations: Annotated[tuple[ValidationItem, ...], Field(min_length=1, max_length=_AT_MOST)]
    """The rules."""
    variables: Annotated[tuple[Variable, ...], Field(max_length=_AT_MOST)] = ()
    """Named values. Each can read the ones before it."""
    match_conditions: Annotated[tuple[NamedExpression, ...], Field(max_length=64)] = ()
    """Conditions for evaluating a request, in addition to `match`. All must be true."""
    params: dict[str, Any] = {}
    """Values for the expressions, as `params.<name>`."""
