"""Installations with each kind of certificates, using the commands of docs/certificates.md."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from bench.chaos.cert_manager import cert_manager, mounted_certificate
from tests.controlplane.harness.pages import commands, sections
from tests.controlplane.harness.webhook import CERTIFICATES, NAMESPACE, Webhook
from tests.controlplane.install.installation import APPLY, Installation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CERTIFICATE_PAGE: Final = sections("certificates.md")
MANAGED: Final = f"--tls-secret={NAMESPACE}/{CERTIFICATES}"


@contextlib.contextmanager
def self_managed(installation: Installation) -> Iterator[Webhook]:
    installation.call()
    installation.run(APPLY)
    with installation.replica(MANAGED) as replica:
        yield replica


@contextlib.contextmanager
def provided(installation: Installation) -> Iterator[Webhook]:
    """Point the API server at the replica after the page's commands: one of them also writes the Service's port."""
    installation.choose("provided-certs", instead_of="self-managed")
    issued, applied = CERTIFICATE_PAGE["Provided"].split("Apply the overlay, create")
    apply, create, *others = commands(applied)
    installation.run(*commands(issued), apply, create)
    with installation.replica(*files_in(installation.folder)) as replica:
        installation.run(*others)
        installation.call()
        installation.run(APPLY)
        yield replica


@contextlib.contextmanager
def from_cert_manager(installation: Installation) -> Iterator[Webhook]:
    installation.choose("cert-manager", instead_of="self-managed")
    installation.call()
    with cert_manager(installation.own):
        installation.run(*commands(CERTIFICATE_PAGE["cert-manager"]))
        with (
            mounted_certificate(installation.own, installation.folder),
            installation.replica(*files_in(installation.folder)) as replica,
        ):
            yield replica


def files_in(folder: Path) -> tuple[str, str]:
    return f"--tls-cert={folder / 'tls.crt'}", f"--tls-key={folder / 'tls.key'}"
