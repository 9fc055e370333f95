"""What can happen to the files of a run's folder."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path

from tests.left_behind import left_behind

Damage = Callable[[Path], None]


def emptied(name: str) -> Damage:
    """Leave nothing in the files of a name or pattern."""
    return _each(name, lambda path: path.write_bytes(b""))


def cut(name: str) -> Damage:
    """Leave the first half of the files."""
    return _each(name, lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]))


def torn(name: str) -> Damage:
    """Leave all but the last bytes of the files, as a kill in the midst of writing does."""
    return _each(name, lambda path: path.write_bytes(path.read_bytes()[:-9]))


def elsewhere(name: str) -> Damage:
    """Replace the files by symbolic links to their contents."""

    def link(path: Path) -> None:
        there = path.rename(path.with_name(f"{path.name}.there"))
        path.symlink_to(there)

    return _each(name, link)


def renamed_batch(old: str, new: str) -> Damage:
    """Replace text in the journal of batches."""
    return _each("batches.jsonl", lambda path: path.write_text(path.read_text().replace(old, new)))


def later(name: str, seconds: int) -> Damage:
    """Shift the times in a journal by some seconds."""
    pattern = re.compile(r'(?<="time": )\d+')
    return _each(
        name, lambda path: path.write_text(pattern.sub(lambda found: str(int(found[0]) + seconds), path.read_text()))
    )


def scrambled(name: str) -> Damage:
    """Write other bytes over the middle third of the files."""

    def scramble(path: Path) -> None:
        held = path.read_bytes()
        third = len(held) // 3
        path.write_bytes(held[:third] + bytes(byte ^ 0x5A for byte in held[third : 2 * third]) + held[2 * third :])

    return _each(name, scramble)


def flipped(name: str, after: bytes) -> Damage:
    """Flip one bit of the byte that comes after some others, where these occur first."""

    def flip(path: Path) -> None:
        held = bytearray(path.read_bytes())
        held[held.index(after) + len(after)] ^= 1
        path.write_bytes(held)

    return _each(name, flip)


def removed(name: str) -> Damage:
    """Take the files away."""
    return _each(name, Path.unlink)


def replaced(name: str, text: str) -> Damage:
    """Put other text into the files."""
    return _each(name, lambda path: path.write_text(text))


def _each(name: str, deed: Callable[[Path], object]) -> Damage:
    def damage(folder: Path) -> None:
        paths = list(folder.glob(name))
        assert paths, f"no {name} in {folder}"
        for path in paths:
            deed(path)

    return damage


def bombed(folder: Path) -> None:
    """Write a compressed file of questions that unpacks to 300 MiB."""
    content = b"question,answer\n" + (b"x" * 2**20 + b",y\n") * 300
    (folder.parents[1] / "bomb.csv.gz").write_bytes(gzip.compress(content, 1))


def nested(folder: Path) -> None:
    """Write a file of prompts with one value that is nested 20,000 deep."""
    (folder.parents[1] / "deep.toml").write_text(f"a = {'[' * 20_000}{']' * 20_000}\n")


def with_plugins(folder: Path) -> None:
    """Put a distribution into the working folder that takes over the names of clients, and has a grader that exits."""
    metadata = folder.parent / "stranger-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.4\nName: stranger\nVersion: 1.0\n")
    names = "".join(f"{name} = stranger:client\n" for name in ("openai", "together"))
    graders = "[refusal_index.graders]\nexits = stranger:grade\nexact = stranger:grade\n"
    (metadata / "entry_points.txt").write_text(f"[refusal_index.models]\n{names}\n{graders}")
    (folder.parent / "stranger.py").write_text("import sys\n\nsys.exit()\n")


def linked(folder: Path) -> None:
    """Replace the folder by a symbolic link to another one."""
    there = folder.with_name("there")
    there.mkdir()
    folder.symlink_to(there, target_is_directory=True)


def half_renamed(folder: Path) -> None:
    """Leave the state after a kill while writing a file."""
    left_behind(folder / "summary.json").write_text("{")


def without_results(folder: Path) -> None:
    """Remove all derived files."""
    for name in ("outcomes.parquet", "summary.json", "report.html"):
        (folder / name).unlink()
