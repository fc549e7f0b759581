"""Fuzz targets: each input of spotgate, its seed files, and the commands that read it.

The command line runs in this process. No command may end in a traceback or take too long, and its exit code must match
its output.
"""

from __future__ import annotations

import base64
import io
import json
import re
import signal
import traceback
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn
from zlib import crc32

import jsonpatch

from tests.builders import BUNDLE, NOW
from tests.loading import cache_shipped_documents
from webhook.capacity.view import ClusterView
from webhook.commands import main
from webhook.engine.bundle import SHIPPED, policy_kinds
from webhook.engine.engine import decide
from webhook.engine.response import respond
from webhook.inputs import policies
from webhook.inputs.state import FileState
from webhook.model.review import MalformedObjectError, decode_object, decode_review
from webhook.rules.context import Context, Phase
from webhook.runtime.recording import encode_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from webhook.engine.bundle import Bundle

ROOT: Final = Path(__file__).parents[2]
STATE: Final = str(ROOT / "examples/state")
SECONDS_AT_MOST: Final = 10.0
"""The limit of a command's processor time; the fuzzer's instrumentation makes commands about three times slower."""
_KIND: Final = re.compile(rb"(?m)^kind: (\w+)$")
_OF_SPOTGATE: Final = re.compile(r'File "[^"]*/((?:webhook|certs|jmespath)/[^"]+)", line (\d+)')


class FaultError(Exception):
    """An input that spotgate doesn't handle. The first argument is the same for all faults at one place."""


class _TooSlowError(BaseException):
    """A command that took too long. It isn't an Exception, so that no handler catches it."""


@dataclass(frozen=True)
class Target:
    """One kind of input.

    Attributes:
        file: its name.
        globs: the seed files in this repository.
        commands: the command lines; ``{}`` is the file and ``{folder}`` its folder.
        kinds: the kinds of the documents that are inputs; empty if each file is one input.
        manifests: a file to copy to ``manifests.yaml``.
        seed: converts a file into an input.
    """

    file: str
    globs: tuple[str, ...]
    commands: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    manifests: str = ""
    seed: Callable[[bytes], bytes] = bytes

    @cached_property
    def seeds(self) -> list[bytes]:
        """Return the seed inputs, in a fixed order."""
        files = [path.read_bytes() for path in sorted({path for glob in self.globs for path in ROOT.glob(glob)})]
        if self.kinds:
            documents = (part for file in files for part in re.split(rb"(?m)^---\n", file))
            files = [part for part in documents if (kind := _KIND.search(part)) and kind[1].decode() in self.kinds]
        return list(map(self.seed, files))


def _recorded(review: bytes) -> bytes:
    """Return a review's record, as a webhook writes it; half of the records lack a view of the cluster."""
    phase = list(Phase)[crc32(review) % 2]
    view = FileState([Path(STATE)], BUNDLE.providers).view() if len(review) % 2 else ClusterView()
    context = Context(phase=phase, now=NOW, view=view)
    request = decode_review(review)
    decision = decide(request, BUNDLE.index, context)
    return encode_line(request, decision, context, BUNDLE, respond(request.uid, decision, phase))


_POLICIES: Final = ("Exemption", "Mode", "WorkloadTemplates", *policy_kinds())
_PODS: Final = " ".join(str(ROOT / "examples" / name) for name in ("web-on-spot.yaml", "pod-reserved-label.yaml"))
_POOLS: Final = f"{ROOT}/tests/zoo/cks/pools.yaml {ROOT}/tests/zoo/karpenter/pools.yaml"
_REVIEWS: Final = ("tests/golden/reviews/*.json",)
_EXAMPLES: Final = ("examples/**/*.yaml", "webhook/policy/examples/*.yaml", "webhook/rules/*/example.yaml")
_MANIFESTS: Final = ("examples/*.yaml", "examples/state*/*.yaml", "tests/zoo/**/*.yaml", "tests/capacity/pools/*.yaml")
TARGETS: Final = {
    "reviews": Target(
        "review.json",
        _REVIEWS,
        tuple(f"review --phase {phase}{state} {{}}" for phase in Phase for state in ("", f" --state {STATE}")),
    ),
    "manifests": Target(
        "manifests.yaml",
        _MANIFESTS,
        ("check -o json {}", "fix --diff {}", "explain {}", f"check -o html --state {{}} {_PODS}"),
    ),
    "policies": Target(
        "policies.yaml",
        ("policies/*.yaml", "tests/controlplane/*/*.yaml", *_EXAMPLES),
        (f"check -o json --policies {{}} --state {STATE} {_PODS}",),
        _POLICIES,
    ),
    "project": Target(
        ".spotgate.yaml",
        ("tests/fuzz/project/*.yaml",),
        ("check -o json {folder}", "fix --diff {folder}"),
        manifests="examples/web-on-spot.yaml",
    ),
    "providers": Target(
        "provider.yaml",
        ("policies/providers/*.yaml", "tests/zoo/**/*.yaml", *_EXAMPLES),
        (f"check -o json --policies shipped --policies {{}} {_POOLS} {_PODS}",),
        ("CapacityProvider",),
    ),
    "policytests": Target(
        "tests.yaml", ("policies/tests/*.yaml", *_EXAMPLES), ("test --policies shipped -o json {}",), ("PolicyTest",)
    ),
    "recordings": Target("recorded.jsonl", _REVIEWS, ("replay -o json {}",), seed=_recorded),
}


def load_once() -> None:
    """Load the shipped policies once for all commands of this process."""
    cache_shipped_documents()
    load: Callable[..., Bundle] = vars(policies)["load_bundle"]
    shipped = cache(load)

    def load_bundle(paths: Sequence[Path] = (), **of: str) -> Bundle:
        return shipped(**of) if all(path == SHIPPED for path in paths) else load(paths, **of)

    vars(policies)["load_bundle"] = load_bundle


def run(target: Target, data: bytes, folder: Path) -> None:
    """Run one of the target's commands, always the same for an input. Raise FaultError if it doesn't handle the input."""
    file = folder / target.file
    file.write_bytes(data)
    if target.manifests:
        (folder / "manifests.yaml").write_bytes((ROOT / target.manifests).read_bytes())
    arguments = target.commands[crc32(data) % len(target.commands)].format(file, folder=folder).split()
    code, out, err = _output(arguments)
    if "Traceback (most recent call last)" in err:
        errors = re.findall(r"(?m)^([\w.]+)(?::|$)", err)  # the last one is the command line's
        raise FaultError(f"{errors[-2:-1]} at {_OF_SPOTGATE.findall(err)[-1:]}", err)
    if bugs := re.findall(r"because of a bug in spotgate.*|object/internal-error", out + err):
        raise FaultError(bugs[0], err)
    if problem := _problem(arguments[0], code, out, err, data):
        raise FaultError(problem, f"spotgate {' '.join(arguments)}: exit code {code}\n{out:.2000}\n{err:.2000}")


def _output(arguments: Sequence[str]) -> tuple[int, str, str]:
    """Return a command's exit code, output, and errors."""

    def stop(*_: object) -> NoReturn:
        raise _TooSlowError

    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS_AT_MOST)
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = main(arguments)
    except _TooSlowError as error:
        raise FaultError(f"too slow: {arguments[0]}", "".join(traceback.format_exception(error))) from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    written = [stream.buffer.getvalue().decode(errors="replace") for stream in (out, err)]
    return code, written[0], written[1]


def _problem(command: str, code: int, out: str, err: str, data: bytes) -> str:
    """Describe the problem with an answer; empty if there is none."""
    if code not in {0, 1, 2} or (code == 1 and command == "review"):
        return f"{command}: exit code {code}"
    if code == 2 and not err.strip():
        return f"{command}: exit code 2 without a reason"
    if command == "review" and code == 0:
        answer, request = json.loads(out)["response"], decode_review(data)
        if answer["uid"] != request.uid or not (answer["allowed"] is True or answer["status"]["message"]):
            return "review: no answer to the request"
        # API servers send neither Pods without a spec nor invalid UTF-8, which spotgate ignores in fields that it doesn't read.
        with suppress(MalformedObjectError):
            target = decode_object(request.object)
            if isinstance(target.get("spec"), dict):
                jsonpatch.apply_patch(target, json.loads(base64.b64decode(answer.get("patch", "W10="))))
    if command == "check" and out.startswith("{"):
        report = json.loads(out)
        denied = any(result["outcome"] == "deny" for result in report["results"])
        if code < (2 if "unreadable" in report else int(denied)) or (code == 1 and not report["results"]):
            return f"check: exit code {code}, {report['summary']}"
    return ""
