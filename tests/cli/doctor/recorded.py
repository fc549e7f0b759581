"""Recorded answers of a real API server to `spotgate doctor` for a healthy installation, replayed with changes.

tests/controlplane/commands/test_doctor.py records them, and fails with the new file if doctor sends other requests. The file
omits data that depends on policies, version, and date; replaying fills it in.
"""

from __future__ import annotations

import base64
import json
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from multidict import CIMultiDict

from certs.authority import KeyPair, create_authority, issue_leaf
from tests.answers import Answer as JsonAnswer
from webhook import __version__
from webhook.cluster.api import Api, ApiError
from webhook.engine.bundle import load_bundle
from webhook.registration.configurations import configurations

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    import aiohttp

ANSWERS = Path(__file__).with_name("answers.json")
NAMESPACE = "spotgate-system"
NOT_FOUND = 404
HOST = "spotgate.spotgate-system.svc"

_CONFIGURATION = re.compile(r"GET /apis/admissionregistration.k8s.io/v1/(\w+)configurations/spotgate\b")
_UNUSED = frozenset(
    [
        "addresses",
        "annotations",
        "creationTimestamp",
        "daemonEndpoints",
        "dnsPolicy",
        "env",
        "generateName",
        "generation",
        "hostIPs",
        "images",
        "initContainers",
        "livenessProbe",
        "managedFields",
        "observedGeneration",
        "ownerReferences",
        "phase",
        "podIPs",
        "readinessProbe",
        "resourceVersion",
        "schedulerName",
        "securityContext",
        "startupProbe",
        "strategy",
        "tolerations",
        "topologySpreadConstraints",
        "uid",
        "volumeMounts",
    ]
)
_COUNTS = re.compile(r"(apiserver_admission_webhook_(fail_open|rejection)_count|spotgate_(last|cluster|cert)\w+)[{ ]")


@dataclass(frozen=True, slots=True)
class Answer:
    """The status, body, warnings, and date of an answer."""

    status: int
    body: str
    warnings: tuple[str, ...] = ()
    date: str = ""


def key_of(method: str, path: str, body: Mapping[str, Any] | None) -> str:
    """Return the key of a request; repeated access reviews with equal answers share one."""
    about = (body or {}).get("spec", {}) if "pools" in path else (body or {}).get("metadata", {}).get("labels")
    return f"{method} {path.removesuffix('?resourceVersion=0')}" + (
        f" {json.dumps(about, sort_keys=True)}" if body and about else ""
    )


def reduced(answers: Iterable[tuple[str, Answer]]) -> dict[str, dict[str, Any]]:
    """Return the answers to record by request, without unused data and data that replaying fills in."""
    # A resource without a record doesn't exist. New providers add many kinds of node pools.
    there = ((key, _reduced(key, answer)) for key, answer in sorted(answers, key=lambda pair: pair[0]))
    return {key: kept for key, kept in there if kept["status"] != NOT_FOUND and kept.get("json", {}).get("items") != []}


def file_of(answers: dict[str, dict[str, Any]]) -> str:
    """Return the file content for these answers, one per line."""
    lines = (f"{json.dumps(key)}: {json.dumps(answer)}" for key, answer in answers.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _reduced(key: str, answer: Answer) -> dict[str, Any]:
    if not answer.body.startswith("{"):
        lines = [line for line in answer.body.splitlines() if _COUNTS.match(line)]
        return {"status": answer.status, "text": lines}
    body = json.loads(answer.body)
    if _CONFIGURATION.match(key):
        del body["webhooks"]
        body["metadata"] = {"managedFields": body["metadata"]["managedFields"]}
    elif key.endswith("/proxy/version"):
        body = {}
    elif key.endswith("accessreviews"):
        body = {"status": {"allowed": body["status"]["allowed"]}}
    elif key.endswith("/mutatingwebhookconfigurations"):
        body = {"items": [{"metadata": {"name": item["metadata"]["name"]}} for item in body["items"]]}
    elif key == "GET /apis":
        body = {"groups": [{"name": item["name"]} for item in body["groups"]]}
    else:
        body = _without_unused(body)
    return {"status": answer.status, "warnings": answer.warnings, "json": body}


def _without_unused(value: Any) -> Any:
    if isinstance(value, dict):
        used = {key: child for key, child in value.items() if key not in _UNUSED}
        if "conditions" in used:
            used["conditions"] = [
                {name: condition[name] for name in ("type", "status")}
                for condition in used["conditions"]
                if condition["type"] == "Ready"
            ]
        return {key: _without_unused(child) for key, child in used.items()}
    return [_without_unused(item) for item in value] if isinstance(value, list) else value


@cache
def certificates(name: str = HOST) -> tuple[KeyPair, KeyPair]:
    """Return a CA and a certificate that it issued for this name."""
    now = datetime.now(UTC)
    authority = create_authority(now)
    return authority, issue_leaf(authority, names=[name], ips=[], now=now)


@cache
def recorded() -> dict[str, Answer]:
    """Return the answers for a healthy installation of the shipped policies."""
    bundle = load_bundle(own_namespace=NAMESPACE)
    authority, leaf = certificates()
    client = {"service": {"name": "spotgate", "namespace": NAMESPACE}, "caBundle": _base64(authority.certificate_pem)}
    rendered = {f"{config['kind'].lower()}s": config["webhooks"] for config in configurations(bundle, client)}
    answers = {}
    for key, answer in json.loads(ANSWERS.read_text()).items():
        if "text" in answer:
            answers[key] = Answer(answer["status"], "\n".join(answer["text"]))
            continue
        body = answer["json"]
        if matched := _CONFIGURATION.match(key):
            body["webhooks"] = rendered[f"{matched[1]}configurations"]
        elif key.endswith("/proxy/version"):
            pem = leaf.certificate_pem.decode()
            body |= {"version": __version__, "bundle": bundle.hash, "certificate": pem}
        answers[key] = Answer(answer["status"], json.dumps(body), tuple(answer["warnings"]))
    return answers


class RecordedApi(Api):
    """An API server that replays recorded answers, except those in `changed`.

    Attributes:
        reviewed: the reviews that it received.

    Args:
        changed: replacements in an answer, or the answer, by part of the request's key (with $, its end).
        denied: actions that access reviews deny, such as `create pods`.
    """

    def __init__(self, changed: Mapping[str, Answer | Mapping[str, str]] | None = None, denied: str = "") -> None:
        self.reviewed: list[str] = []
        self._changed = changed or {}
        self._denied = denied

    @asynccontextmanager
    async def _exchange(
        self, method: str, path: str, _: object, __: object, body: Any = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        asked = path.endswith("accessreviews") and body
        answer = self._reviewed(asked["spec"]) if asked else self._answer(key_of(method, path, body))
        yield cast("aiohttp.ClientResponse", answer)

    def _reviewed(self, spec: Mapping[str, Any]) -> _Response:
        about = spec["resourceAttributes"]
        access = f"{about['verb']} {about['resource']}"
        self.reviewed.append(access)
        return _Response(Answer(201, json.dumps({"status": {"allowed": access != self._denied}})))

    def _answer(self, key: str) -> _Response:
        answer = recorded().get(key, Answer(404, "{}"))
        for part, change in self._changed.items():
            if part.rstrip("$") not in key or (part.endswith("$") and not key.endswith(part[:-1])):
                continue
            if isinstance(change, Answer):
                answer = change
            else:
                body = answer.body
                for old, new in change.items():
                    assert re.search(old, body), f"{key} does not hold {old}: {body}"
                    body = re.sub(old, new, body)
                answer = replace(answer, body=body)
        if answer.status >= 300:
            raise ApiError.refused(answer.status, json.loads(answer.body or "{}").get("message", ""))
        return _Response(answer)


class _Response(JsonAnswer):
    """The part of a response that doctor reads."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.body.encode())
        self.headers = CIMultiDict([("Date", answer.date), *(("Warning", warning) for warning in answer.warnings)])

    async def text(self) -> str:
        return self._body.decode()


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
