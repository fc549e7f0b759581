"""Read the object of ``explain KIND/NAME --kubeconfig FILE`` from the cluster."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from webhook.base.exits import CannotJudgeError
from webhook.cluster.api import Api, ApiError
from webhook.cluster.discovery import served_resources
from webhook.inputs.objects import DEFAULT_NAMESPACE
from webhook.policy.errors import did_you_mean

_ANSWER: Final = 10.0
"""The timeout of each response, in seconds."""


async def read_object(api: Api, word: str, name: str, namespace: str) -> bytes:
    """Return an object of the cluster as JSON. Raise CannotJudgeError if it can't be read or doesn't exist."""
    served = await served_resources(lambda path, accept: api.read(path, _ANSWER, accept))
    wanted = word.casefold()
    named = [kind for kind in served if wanted in {kind.resource.kind.casefold(), kind.resource.plural, str(kind)}]
    if not named:
        known = [name for kind in served for name in (kind.resource.kind.casefold(), kind.resource.plural)]
        raise CannotJudgeError(f"error: the cluster has no kind {word}{did_you_mean(word, known)}")
    resource = named[0]
    where = (namespace or api.namespace or DEFAULT_NAMESPACE) if resource.resource.namespaced else ""
    try:
        return await api.read(f"{resource.path_in(where)}/{quote(name, safe='')}", _ANSWER)
    except ApiError as error:
        of = f" in namespace {where}" if where else ""
        raise CannotJudgeError(f"error: {resource} {name}{of} can't be read: {error}") from None
