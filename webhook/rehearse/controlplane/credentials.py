"""Create the credentials of a control plane: certificates, keys, tokens, and kubeconfigs."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from certs.authority import create_authority, issue_leaf

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# Users and their groups. RBAC has default roles for the two servers. KWOK acts as every kubelet, so it is an admin.
GROUPS: Final = {
    "admin": ["system:masters"],
    "kwok": ["system:masters"],
    "system:kube-controller-manager": [],
    "system:kube-scheduler": [],
}


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials of the servers and their users, as files below `directory`.

    Attributes:
        url: the address of the API server.
        tokens: the bearer token of each user in GROUPS.
        authority: the CA of the API server's certificate.
        certificate, key: the API server's serving certificate and key; also used for ServiceAccount tokens.
    """

    directory: Path
    url: str
    tokens: dict[str, str]
    authority: Path
    certificate: Path
    key: Path

    def kubeconfig(self, user: str) -> Path:
        """Return the path of the kubeconfig of a user in GROUPS."""
        return self.directory / f"{user}.kubeconfig"

    def write_kubeconfig(self, path: Path, user: dict[str, str | Sequence[str]]) -> None:
        """Write a kubeconfig with this `user` section."""
        cluster = {"server": self.url, "certificate-authority": str(self.authority)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "spotgate", "cluster": cluster}],
            "users": [{"name": "user", "user": user}],
            "contexts": [{"name": "spotgate", "context": {"cluster": "spotgate", "user": "user"}}],
            "current-context": "spotgate",
        }
        path.write_text(json.dumps(config, indent=1))


def create_credentials(directory: Path, *, port: int) -> Credentials:
    """Create all credentials in `directory`, which must exist and be private."""
    tokens = {user: secrets.token_hex(16) for user in GROUPS}
    names = ("ca.crt", "apiserver.crt", "apiserver.key")
    credentials = Credentials(directory, f"https://127.0.0.1:{port}", tokens, *(directory / name for name in names))
    for user, token in tokens.items():
        credentials.write_kubeconfig(credentials.kubeconfig(user), {"token": token})
    lines = (f'{token},{user},{user},"{",".join(GROUPS[user])}"\n' for user, token in tokens.items())
    (directory / "tokens.csv").write_text("".join(lines))

    now = datetime.now(UTC)
    authority = create_authority(now)
    leaf = issue_leaf(authority, names=["localhost"], ips=["127.0.0.1"], now=now)
    credentials.authority.write_bytes(authority.certificate_pem)
    credentials.certificate.write_bytes(leaf.certificate_pem)
    credentials.key.write_bytes(leaf.key_pem)
    return credentials
