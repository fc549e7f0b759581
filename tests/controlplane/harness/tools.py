"""Go programs that tests and benchmarks run in addition to a control plane, built in the same way."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from webhook.rehearse.controlplane.binaries import Module, cache_directory, find_or_build, has_programs

if TYPE_CHECKING:
    from collections.abc import Collection

MODULES: Final = Path(__file__).parent / "modules"
ACTIONLINT: Final = Module(
    directory=MODULES / "actionlint",
    source="github.com/rhysd/actionlint",
    packages={"actionlint": "github.com/rhysd/actionlint/cmd/actionlint"},
)
GOJQ: Final = Module(
    directory=MODULES / "gojq", source="github.com/itchyny/gojq", packages={"gojq": "github.com/itchyny/gojq/cmd/gojq"}
)
HELM: Final = Module(
    directory=MODULES / "helm", source="helm.sh/helm/v4", packages={"helm": "helm.sh/helm/v4/cmd/helm"}
)
KUSTOMIZE: Final = Module(
    directory=MODULES / "kustomize",
    source="sigs.k8s.io/kustomize/kustomize/v5",
    packages={"kustomize": "sigs.k8s.io/kustomize/kustomize/v5"},
)
CERT_MANAGER: Final = Module(
    directory=MODULES / "cert-manager", source="github.com/cert-manager/cert-manager", packages={"cert-manager": "."}
)
TOOLS: Final = (ACTIONLINT, CERT_MANAGER, GOJQ, HELM, KUSTOMIZE)
GATOR: Final = Module(
    directory=MODULES / "gator",
    source="github.com/open-policy-agent/gatekeeper/v3",
    packages={"gator": "github.com/open-policy-agent/gatekeeper/v3/cmd/gator"},
)
KYVERNO: Final = Module(
    directory=MODULES / "kyverno",
    source="github.com/kyverno/kyverno",
    packages={"kyverno": "github.com/kyverno/kyverno/cmd/cli/kubectl-kyverno"},
)
KUBECONFORM: Final = Module(
    directory=MODULES / "kubeconform",
    source="github.com/yannh/kubeconform",
    packages={"kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform"},
)
PEERS: Final = (GATOR, KUBECONFORM, KYVERNO)  # measured by `make bench-peers`


def find_tools(names: Collection[str]) -> dict[str, Path]:
    """Return the paths of the named programs. Build missing ones, which takes minutes, once. Raise BinariesError."""
    return find_or_build(names, modules=(*TOOLS, *PEERS))


def find_built(name: str) -> Path | None:
    """Return the path of one of these programs from the PATH or the cache, and None if it would have to be built."""
    if program := shutil.which(name):
        return Path(program)
    (module,) = (module for module in TOOLS if name in module.packages)
    folder = cache_directory() / module.key
    return folder / name if has_programs(folder, [name]) else None
