"""Evidence for the registry: only the published files are ever loaded."""

from __future__ import annotations

import hashlib

import pytest

from refusal_index.plugins.almanac import ModelFileError, ModelNotFoundError
from refusal_index.plugins.almanac.models import model_folder, model_names, verified_folder


@pytest.fixture
def root(tmp_path):
    lines = []
    for name in ("base", "base-2"):
        (tmp_path / name).mkdir()
        for file in ("config.json", "model.safetensors"):
            content = f"{name} {file}".encode()
            (tmp_path / name / file).write_bytes(content)
            lines.append(f"{hashlib.sha256(content).hexdigest()}  {name}/{file}\n")
    (tmp_path / "SHA256SUMS").write_text("".join(lines))
    return tmp_path


def test_files_as_published_pass(root):
    assert verified_folder(root, "base") == root / "base"


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_a_changed_file_is_named(root, file):
    with (root / "base" / file).open("ab") as changed:
        changed.write(b"\0")
    with pytest.raises(ModelFileError, match=rf"{file}: not the file that was published"):
        verified_folder(root, "base")
    assert verified_folder(root, "base-2")


@pytest.mark.parametrize("missing", ["base/config.json", "SHA256SUMS"])
def test_a_missing_file_is_named(root, missing):
    (root / missing).unlink()
    with pytest.raises(ModelFileError, match=rf"{missing}: cannot be read \(No such file"):
        verified_folder(root, "base")


def test_a_model_without_checksums_is_not_trusted(root):
    (root / "other").mkdir()
    with pytest.raises(ModelFileError, match="no file of model 'other' is listed"):
        verified_folder(root, "other")


@pytest.mark.parametrize(
    ("name", "hint"), [("bsae", "did you mean 'base'"), ("Small", "did you mean 'small'"), ("rash/../base", "rash")]
)
def test_an_unknown_name_is_answered_with_the_nearest(name, hint):
    with pytest.raises(ModelNotFoundError, match=hint) as caught:
        model_folder(name)
    assert all(known in str(caught.value) for known in model_names())


def test_a_name_like_no_other_gets_no_guess():
    with pytest.raises(ModelNotFoundError) as caught:
        model_folder("gpt-4.1")
    assert "did you mean" not in str(caught.value)
