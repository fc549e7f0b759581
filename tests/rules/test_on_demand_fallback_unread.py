"""OnDemandFallback where something of a pool can't be read, or the pool goes with what is being deleted."""

from __future__ import annotations

import pytest

from webhook.documents.model import placeholder_in


@pytest.mark.parametrize("text", ["$1", "a$TYPE", "$TYPE.large", "<TYPE>", "((type))", "$"])
def test_a_name_after_a_dollar_is_a_placeholder_only_as_the_whole_value(text: str) -> None:
    assert (placeholder_in(text), placeholder_in(["m5.large", "$_TYPE2"])) == ("", "$_TYPE2")
