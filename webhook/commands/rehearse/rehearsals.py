"""Run rehearsals with the options of the command."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from msgspec import structs

from webhook.base.exits import CannotJudgeError
from webhook.inputs.objects import read_manifests
from webhook.rehearse.compare import write_base
from webhook.rehearse.fixes import fixes_of, growth_of, with_fixes
from webhook.rehearse.inputs.selection import grown_nodes, loss_of
from webhook.rehearse.inputs.snapshot import ClusterSnapshot, snapshot_of
from webhook.rehearse.inputs.source import ClusterSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from webhook.engine.bundle import Bundle
    from webhook.rehearse.options import RehearseOptions
    from webhook.rehearse.result import Fix, Rehearsal


@dataclass(frozen=True, slots=True)
class Rehearsals:
    """Rehearsals with the same options and policies. All methods raise CannotJudgeError."""

    options: RehearseOptions
    bundle: Bundle

    def read(self, paths: Sequence[str]) -> ClusterSnapshot:
        """Read the cluster and these manifests."""
        options = self.options
        manifests = read_manifests(paths)
        if manifests.problems:
            raise CannotJudgeError("\n".join(map(str, manifests.problems)))
        source = ClusterSource(manifests=manifests.objects)
        if options.publish is not None or options.kubeconfig is not None:
            from webhook.rehearse.inputs.live import live_source

            source = live_source(options, manifests.objects, self.bundle)
        return snapshot_of(source, self.bundle, dict(options.allocatable))

    def run(
        self, snapshot: ClusterSnapshot, lose: Sequence[str], fixes: Sequence[Fix] = (), runs: int | None = None
    ) -> Rehearsal:
        """Rehearse the loss of these values of ``--lose``, with these fixes applied."""
        from webhook.rehearse.runs.rehearsal import rehearse

        options = self.options
        loss, growth = loss_of(lose, snapshot, options.drained_by), options.grow
        if fixes:
            snapshot = with_fixes(snapshot, fixes)
            growth = [*growth, *growth_of(snapshot, options.provisioning_seconds)]
        loss = replace(loss, grown=grown_nodes(growth, snapshot))
        result = rehearse(snapshot, loss, options, runs or options.runs)
        return structs.replace(result, fixes=fixes_of(result, snapshot))

    def run_base(self) -> Rehearsal:
        """Rehearse the manifests of the merge base with the current policies."""
        options = self.options
        with TemporaryDirectory(prefix="spotgate-") as folder:
            try:
                snapshot = self.read(write_base(options.compare or "", [*options.state, *options.paths], Path(folder)))
                return self.run(snapshot, options.lose)
            except CannotJudgeError as error:
                raise CannotJudgeError(f"{error}\nin the base, {options.compare}".replace(f"{folder}/", "")) from None
