"""Cards that PyTorch's default build has no kernels for: requirements, image and README say which build has."""

import re
from dataclasses import replace

import pytest
from run_specs import with_launchers
from test_generate import SPEC

SAYING = ("torchrun/requirements.txt", "trainer/requirements.txt", "launchers/Dockerfile")


def written(capability: str) -> dict[str, str]:
    spec = replace(SPEC, compute_capability=capability)
    return with_launchers(spec, ["torchrun", "trainer"])


@pytest.mark.parametrize("capability", ["6.0", "6.1", "7.0"])
def test_files_name_the_build_that_has_kernels(capability: str) -> None:
    files = written(capability)
    for name in (*SAYING, "README.md"):
        assert "PyTorch built for CUDA 12.6" in files[name]
        assert re.search(r"from 2\.11 on,? the default build", files[name])
    assert f"compute capability {capability})" in files["README.md"]
    for name in SAYING[:2]:
        lines = files[name].splitlines()
        assert "torch" in lines
        assert all(line.startswith("#") for line in lines[: lines.index("torch")])


@pytest.mark.parametrize("capability", ["", "7.5", "8.0", "10.0", "12.0"])
def test_later_cards_have_the_default_build(capability: str) -> None:
    assert not any("CUDA 12.6" in text for text in written(capability).values())
