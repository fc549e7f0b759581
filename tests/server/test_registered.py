"""A replica reports how many webhooks of the cluster differ from those that its policies need."""

from __future__ import annotations

import asyncio
import io
import json
from typing import TYPE_CHECKING, NoReturn

import pytest

from tests.cli.doctor.recorded import NAMESPACE, Answer, RecordedApi, recorded
from webhook.engine.bundle import SHIPPED, load_bundle
from webhook.runtime.log import configure_logging
from webhook.server.registered import Registered

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from webhook.engine.bundle import Bundle

KINDS = ("/mutatingwebhookconfigurations/spotgate", "/validatingwebhookconfigurations/spotgate")
GONE, FORBIDDEN = Answer(404, ""), Answer(403, '{"message": "nobody may"}')


@pytest.fixture(autouse=True)
def written() -> io.BytesIO:
    """Return the log."""
    file = io.BytesIO()
    configure_logging(file)
    return file


async def outdated(registered: Registered, bundle: Bundle) -> int | None:
    """Return the result of one comparison."""
    looks = iter([bundle])
    with pytest.raises(asyncio.CancelledError):
        await registered.watch(lambda: next(looks, None) or _cancel(), seconds=0)
    return registered.outdated


def _cancel() -> NoReturn:
    raise asyncio.CancelledError


def edited(old: str, new: str) -> dict[str, Mapping[str, str] | Answer]:
    """Return the validating configuration with a text replaced."""
    (body,) = (answer.body for key, answer in recorded().items() if key.endswith(KINDS[1]))
    assert old in body
    return {KINDS[1]: Answer(200, body.replace(old, new))}


@pytest.mark.parametrize(
    ("changed", "count"),
    [
        ({}, 0),
        (edited('"timeoutSeconds": 3', '"timeoutSeconds": 9'), 0),
        (edited('"nodepools"', '"nodepoolz"'), 2),
        (edited("'UPDATE'", "'PATCH'"), 4),
        ({KINDS[0]: GONE}, 2),
        ({KINDS[0]: FORBIDDEN}, None),
        ({KINDS[0]: Answer(200, "[")}, None),
    ],
)
async def test_rules_and_conditions_are_compared(changed: Mapping[str, Answer], count: int | None) -> None:
    registered = Registered(RecordedApi(changed))
    assert registered.outdated is None
    assert await outdated(registered, load_bundle(own_namespace=NAMESPACE)) == count


async def test_reloaded_policies_are_compared_at_the_next_check(tmp_path: Path, written: io.BytesIO) -> None:
    registered = Registered(RecordedApi())
    team = {"apiVersion": "spotgate.dev/v1", "kind": "ReservedLabels", "metadata": {"name": "team"}}
    (tmp_path / "team.yaml").write_text(json.dumps(team | {"spec": {"domains": ["a.example"]}}))
    assert await outdated(registered, load_bundle(own_namespace=NAMESPACE)) == 0
    assert (await outdated(registered, load_bundle([SHIPPED, tmp_path], own_namespace=NAMESPACE)) or 0) > 0
    assert b"matchConditions differs in" in written.getvalue()
