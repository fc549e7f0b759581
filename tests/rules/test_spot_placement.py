"""What a Pod that targets spot gets."""

from __future__ import annotations

from tests.rules.placement import (
    rule,
)
from webhook.capacity.view import Needs
from webhook.policy.match import PODS_CREATE
from webhook.rules.protocol import Facts, Mutator, Validator
from webhook.rules.spot_placement.rule import KIND

# Other providers


def test_the_kind_asks_for_pools_and_namespaces_and_looks_at_new_pods() -> None:
    assert KIND.needs == Needs(namespaces=True, pools=True)
    assert KIND.rules(Facts({})) == (PODS_CREATE,)
    assert isinstance(rule(), Mutator)
    assert isinstance(rule(), Validator)
