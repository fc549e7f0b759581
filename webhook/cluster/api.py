"""Connect to a Kubernetes API server.

`kubernetes.aio` provides the connection, TLS, and credentials. Its generated models aren't used: they take 25 MB, and
reject unknown fields.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
from collections import Counter
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from http import HTTPStatus
from http.client import responses
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import aiohttp
import msgspec
import structlog
from yaml import YAMLError

from webhook import __version__
from webhook.base.reading import read_file
from webhook.capacity.view import UnusableCredentialsError

# kubernetes/__init__.py imports the synchronous client, which takes 7 MB. `kubernetes.aio` needs only the package.
if "kubernetes" not in sys.modules and (_package := find_spec("kubernetes")) is not None:
    sys.modules["kubernetes"] = module_from_spec(_package)

from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config import ConfigException, kube_config, load_incluster_config, load_kube_config_from_dict

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

    from kubernetes.aio.config.kube_config import ConfigNode, KubeConfigLoader
    from structlog.typing import FilteringBoundLogger

    Body: TypeAlias = Mapping[str, Any] | Sequence[Any]

T = TypeVar("T")

JSON_TYPE: Final = "application/json"

ANSWER_AT_MOST: Final = 16 * 1024 * 1024
"""Bytes of one response to a GET, and of one event. etcd stores objects of 1.5 MiB, and JSON has up to six characters
for one byte, so an object takes 9 MiB."""

_MESSAGE_LENGTH: Final = 300
"""The maximum number of characters of an error message from the API server."""

_IMPERSONATION: Final = ("as", "as-uid", "as-groups", "as-user-extra")
"""The fields of a kubeconfig user that `kubectl` applies and the loader ignores."""

log: FilteringBoundLogger = structlog.get_logger()


NO_ANSWER: Final = 0
"""The status of an `ApiError` without a response."""
TOO_LARGE: Final = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
"""The status of an `ApiError` for a response that is too large to read."""


class ApiError(Exception):
    """A failed request to the API server. ``str()`` is the reason, such as ``403 Forbidden: nodes is forbidden ...``.

    Attributes:
        status: the HTTP status of the response, or `NO_ANSWER`.
        continue_token: the token to continue a list after its token has expired (410); else empty.
    """

    def __init__(self, problem: str, status: int = NO_ANSWER, continue_token: str = "") -> None:
        super().__init__(problem)
        self.status = status
        self.continue_token = continue_token

    def mentions(self, *texts: str) -> bool:
        """Return whether the message contains one of these texts, for facts that the API server gives only as text."""
        return any(text in str(self) for text in texts)

    @property
    def by_rbac(self) -> bool:
        """Return whether authorization forbids the request, and not admission: both have status 403, reason Forbidden.

        https://github.com/kubernetes/kubernetes/blob/v1.37.0/staging/src/k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go
        """
        return self.status == HTTPStatus.FORBIDDEN and self.mentions('is forbidden: User "')

    @property
    def patch_failed(self) -> bool:
        """Return whether a test of a JSON Patch failed. An invalid object has status 422, reason Invalid, too.

        https://github.com/kubernetes/kubernetes/blob/v1.37.0/staging/src/k8s.io/apimachinery/pkg/api/errors/errors.go
        """
        unprocessable = self.status == HTTPStatus.UNPROCESSABLE_ENTITY
        return unprocessable and self.mentions("the server rejected our request due to an error in our request")

    @classmethod
    def refused(cls, status: int, message: str, continue_token: str = "") -> ApiError:
        """Return the error for a response with this status and message."""
        return cls(f"{status} {responses.get(status, '')}: {message[:_MESSAGE_LENGTH].strip()}", status, continue_token)


class Api:
    """A connection to an API server. Use `connect` to create one.

    Attributes:
        namespace: the default namespace of the kubeconfig's context; empty if there is none.
    """

    def __init__(self, client: ApiClient, kubeconfig: Path | None, context: str | None, namespace: str) -> None:
        self.namespace = namespace
        self._client = client
        self._kubeconfig = kubeconfig
        self._context = context
        self._renewing = asyncio.Lock()
        self._in_use: Counter[ApiClient] = Counter()

    @classmethod
    async def connect(cls, kubeconfig: Path | None, context: str | None = None) -> Api:
        """Return a connection with the credentials in this kubeconfig or, if it is None, in this Pod.

        This sends no request. If there are several files, as in $KUBECONFIG, the first value of each setting wins. The
        default of ``context`` is the current one. Raise UnusableCredentialsError if the credentials are invalid.
        """
        client, namespace = await _client(kubeconfig, context)
        return cls(client, kubeconfig, context, namespace)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[ApiClient]:
        """Yield the client of `kubernetes.aio` with the newest credentials, for one request.

        After a renewal of the credentials, its last user closes it, because requests of a closed client fail.
        """
        client = self._client
        self._in_use[client] += 1
        try:
            yield client
        finally:
            self._in_use[client] -= 1
            if client is not self._client and not self._in_use[client]:
                del self._in_use[client]
                await client.close()

    @property
    def url(self) -> str:
        """Return the URL of the API server."""
        return str(self._client.configuration.host)

    async def close(self) -> None:
        """Close the connection. Call this when no request is in progress."""
        await self._client.close()
        await asyncio.sleep(0)  # the event loop closes the sockets in its next iteration

    def get(
        self, path: str, patience: aiohttp.ClientTimeout, accept: str = JSON_TYPE
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Return a context manager with the response to a GET.

        It raises ApiError if there is no response, its status isn't 200 or 201, or its body is incomplete or malformed.
        """
        return self._exchange("GET", path, patience, {"Accept": accept})

    async def read(self, path: str, seconds: float, accept: str = JSON_TYPE, *, at_most: int = ANSWER_AT_MOST) -> bytes:
        """Return the body of the response to a GET. Raise ApiError like `get`, or `TOO_LARGE`."""
        async with self.get(path, aiohttp.ClientTimeout(total=seconds), accept) as response:
            body = bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > at_most:
                    raise ApiError.refused(TOO_LARGE, f"the response has more than {at_most} bytes")
            return bytes(body)

    async def find(self, path: str, kind: type[T], seconds: float) -> T | None:
        """Return the object at a path, or None if it doesn't exist. Raise ApiError like `get`."""
        try:
            async with self.get(path, aiohttp.ClientTimeout(total=seconds)) as response:
                return msgspec.json.decode(await response.read(), type=kind)
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
        return None

    async def write(self, method: str, path: str, body: Body, seconds: float, media_type: str = JSON_TYPE) -> None:
        """Send a request like `send`, and discard the response."""
        async with self.send(method, path, body, seconds, media_type) as response:
            async for _ in response.content.iter_any():
                pass

    def send(
        self, method: str, path: str, body: Body, seconds: float, media_type: str = JSON_TYPE
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Return a context manager with the response to a POST, PATCH, or DELETE. It raises ApiError like `get`."""
        headers = {"Accept": JSON_TYPE, "Content-Type": media_type}
        return self._exchange(method, path, aiohttp.ClientTimeout(total=seconds), headers, body)

    @asynccontextmanager
    async def _exchange(
        self, method: str, path: str, patience: aiohttp.ClientTimeout, headers: dict[str, str], body: Body | None = None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        async with self.client() as client:
            try:
                request = await client.param_serialize(
                    method, path, header_params=headers, body=body, auth_settings=["BearerToken"]
                )
                answer = await client.call_api(*request, _request_timeout=patience)
                response: aiohttp.ClientResponse = answer.response
                async with response:
                    if response.status not in {HTTPStatus.OK, HTTPStatus.CREATED}:
                        raise _refusal(response.status, await response.read())
                    yield response
            except ApiError as error:
                if error.status == HTTPStatus.UNAUTHORIZED:
                    await self._renew(client)
                raise
            except (ssl.SSLError, aiohttp.SocketTimeoutError) as error:  # if a watch hangs, idle connections may, too
                await self._renew(client)
                raise ApiError(str(error)) from error
            except TimeoutError as error:
                raise ApiError("the API server didn't answer in time") from error
            except (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError) as error:
                raise ApiError("the connection broke") from error
            except (aiohttp.ClientError, ConfigException, OSError) as error:
                raise ApiError(str(error)) from error
            except msgspec.MsgspecError as error:
                raise ApiError(f"the API server's answer is malformed: {error}") from error

    async def _renew(self, used: ApiClient) -> None:
        """Reload the credentials, because tokens and certificates are rotated before they expire."""
        async with self._renewing:
            if used is not self._client:
                return  # another request has already reloaded them
            try:
                self._client, _ = await _client(self._kubeconfig, self._context)
            except UnusableCredentialsError as error:
                log.warning("credentials not renewed", problem=str(error))


class _Status(msgspec.Struct):
    message: str | None = None
    metadata: dict[str, Any] | None = None


def _refusal(status: int, body: bytes) -> ApiError:
    try:
        read = msgspec.json.decode(body, type=_Status)
    except msgspec.MsgspecError:  # for example, the answer of a proxy
        read = _Status(body.decode(errors="replace"))
    return ApiError.refused(status, read.message or "", (read.metadata or {}).get("continue", ""))


async def _client(kubeconfig: Path | None, context: str | None) -> tuple[ApiClient, str]:
    """Return a client, and the namespace of the kubeconfig's context."""
    namespace = ""
    configuration = Configuration()
    # Many clusters have certificates without extensions that Python 3.13 requires, and client-go doesn't.
    configuration.disable_strict_ssl_verification = True
    try:
        if kubeconfig is None:
            load_incluster_config(configuration)
        else:
            loader = await load_kube_config_from_dict(*_merged(kubeconfig, context), configuration)
            _refuse_what_the_loader_ignores(loader)
            namespace = loader.current_context["context"].get("namespace") or ""
        client = ApiClient(configuration)
    except Exception as error:  # the loader can raise anything for a user's file
        credentials = kubeconfig or "the Pod's ServiceAccount"
        why = _why(error, kubeconfig)
        raise UnusableCredentialsError(f"{credentials}: can't be used to reach an API server: {why}") from error
    client.user_agent = f"spotgate/{__version__}"
    return client, namespace


def _merged(kubeconfig: Path, context: str | None) -> tuple[ConfigNode, str | None]:
    """Return the merged files and the context. Like kubectl, use the first file that sets the current context."""
    for file in str(kubeconfig).split(os.pathsep):
        read_file(file)  # the loader treats a missing file as empty, and waits for a pipe
    merger = kube_config.KubeConfigMerger(str(kubeconfig))
    current = (config_file.get("current-context") for config_file in merger.config_files.values())
    return merger.config, context or next(filter(None, current), None)


def _refuse_what_the_loader_ignores(loader: KubeConfigLoader) -> None:
    """Raise ValueError if the loader would use a different identity than kubectl. The loader logs plugin failures."""
    user = loader._user or {}  # noqa: SLF001 - there is no public attribute
    if impersonates := next((key for key in _IMPERSONATION if key in user), ""):
        raise ValueError(
            f"its user has `{impersonates}`, and spotgate can't impersonate users; use the credentials of that user"
        )
    credentials = (getattr(loader, attribute, None) for attribute in ("token", "cert_file"))
    if (plugin := next((key for key in ("exec", "auth-provider") if key in user), "")) and not any(credentials):
        name = user[plugin]["command" if plugin == "exec" else "name"]
        raise ValueError(f"its `{plugin}` {name} gave no credentials; install it, or log in again")


def _why(error: Exception, kubeconfig: Path | None) -> str:
    """Return one line that explains why the credentials can't be loaded."""
    if isinstance(error, OSError):
        file = "" if error.filename in (None, str(kubeconfig)) else f"{error.filename}: "
        return f"{file}{error.strerror or error}"
    if isinstance(error, ConfigException | YAMLError | ValueError):
        return " ".join(str(error).split())
    return "it isn't a kubeconfig"  # the loader doesn't check that fields exist
