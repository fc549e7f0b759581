"""Read a branch's base commit, its files, and the changes since then from Git."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from webhook.base.exits import CannotJudgeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_SECONDS: Final = 60
"""The time limit of a Git command. The slowest, a diff of a large repository, takes seconds from a cold disk."""

_OF_THE_CALLER: Final = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
"""Variables that Git hooks set, relative to another folder than the command's."""

_FILES: Final = frozenset({"100644", "100755"})
"""Git's modes of regular files, as opposed to links and submodules."""


class Base(msgspec.Struct, frozen=True):
    """The merge base of HEAD and another commit, and the working tree's changes since then.

    Attributes:
        ref: the name of the other commit.
        files: path from the root -> object id. Excludes links and submodules.
        changed: the paths of these files that the working tree changes or removes.
    """

    root: Path
    ref: str
    commit: str
    files: Mapping[str, str]
    changed: frozenset[str]

    def read(self, paths: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Yield the path and the content of these files in the commit.

        Raise CannotJudgeError if Git doesn't have the content.
        """
        wanted = list(paths)
        ids = "".join(f"{self.files[path]}\n" for path in wanted)
        data = _git(self.root, "cat-file", "--batch", data=ids.encode())
        start = 0
        for path in wanted:
            content = data.index(b"\n", start) + 1
            match data[start:content].split():
                case _, b"blob", size:
                    end = content + int(size)
                case _:  # a partial clone can't fetch it
                    text = f"error: Git has no content of {path} at {self.commit[:12]}; `git fetch` it first"
                    raise CannotJudgeError(text)
            yield path, data[content:end]
            start = end + 1

    def new(self) -> Iterator[str]:
        """Yield the paths of files that are neither tracked nor ignored."""
        listed = _git(self.root, "ls-files", "-z", "--others", "--exclude-standard")
        yield from filter(None, listed.decode(errors="surrogateescape").split("\0"))


def base_of(flag: str, ref: str, folder: Path) -> Base:
    """Return the merge base of HEAD and another branch.

    Raise CannotJudgeError without Git, a repository, the commit, or a common ancestor.
    """
    try:
        root = Path(_text(folder, "rev-parse", "--show-toplevel"))
    except GitError as error:
        raise CannotJudgeError(f"error: {flag} needs the Git repository that {folder} is in: {error}") from None
    try:
        other = _text(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    except GitError:
        text = f"Git knows no commit {ref!r} in {root}; `git fetch` it first, or name another"
        raise CannotJudgeError(f"error: {flag}: {text}") from None
    try:
        commit = _text(root, "merge-base", other, "HEAD")
    except GitError as error:
        text = (
            f"{ref} and HEAD have no commit in common here; name a branch that this one comes from, or, in a shallow "
            "clone, fetch the whole history (`git fetch --unshallow`; fetch-depth: 0 for actions/checkout, "
            "GIT_DEPTH: 0 in GitLab)"
        )
        raise CannotJudgeError(f"error: {flag}: {text} {error}".rstrip()) from None
    listed = _git(root, "ls-tree", "-r", "-z", "--full-tree", commit).decode(errors="surrogateescape")
    entries = (entry.split("\t", 1) for entry in listed.split("\0") if entry)
    files = {path: about.split()[2] for about, path in entries if about.split()[0] in _FILES}
    changed = _git(root, "diff", "--name-only", "-z", "--no-renames", "--no-ext-diff", commit, "--")
    return Base(root, ref, commit, files, frozenset(changed.decode(errors="surrogateescape").split("\0")))


class GitError(CannotJudgeError):
    """A failed Git command, with its output."""


def _text(folder: Path, *arguments: str) -> str:
    return os.fsdecode(_git(folder, *arguments)).removesuffix("\n")


def _git(folder: Path, *arguments: str, data: bytes = b"") -> bytes:
    """Run Git and return its output.

    Raises:
        GitError: if its exit code is not 0.
        CannotJudgeError: if it is not installed or too slow.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _OF_THE_CALLER}
    # Never prompt, and never write to the repository.
    environment |= {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(  # noqa: S603 - no shell
            command, input=data, capture_output=True, check=True, timeout=_SECONDS, env=environment
        )
    except FileNotFoundError:
        raise CannotJudgeError("error: `git` is not installed, or not in PATH; install it, or omit the flag") from None
    except subprocess.TimeoutExpired:
        text = f"error: `git {arguments[0]}` did not end within {_SECONDS} s in {folder}"
        raise CannotJudgeError(text) from None
    except subprocess.CalledProcessError as error:
        raise GitError(error.stderr.decode(errors="backslashreplace").strip()) from None
    return done.stdout
