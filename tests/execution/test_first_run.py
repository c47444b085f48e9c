"""From `planner suggest` to fifty steps, by pasting nothing but what was printed."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from launched import GPT2, LLAMA, run
from test_deepspeed import weights_of

pytestmark = pytest.mark.usefixtures("preloaded")

PLANNER = str(Path(sys.executable).with_name("planner"))
STEPS = 50


def config_alone(folder: Path) -> None:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(GPT2))


def with_weights(folder: Path) -> None:
    weights_of(LLAMA, folder)


JOBS: dict[str, tuple[Callable[[Path], None], tuple[str, ...]]] = {
    "pretraining": (config_alone, ()),
    "fine-tuning": (with_weights, ()),
    "lora": (with_weights, ("--method", "lora")),
}
"""The model that the user has, and what is asked for."""


def commands(text: str) -> list[str]:
    """Return what the README's blocks of commands hold, each a paste."""
    return re.findall(r"^```bash\n(.*?)\n```$", text, re.MULTILINE | re.DOTALL)


def masked(line: str) -> str:
    """Return a line of progress without its figures, or what stands for them."""
    return re.sub(r"\d+(?:[.,]\d+)*(?:e[+-]\d+)?%?|\b[LN]\b", "#", line).replace("#/#", "#")


@pytest.mark.parametrize("job", JOBS)
def test_a_new_users_first_run_ends_with_a_model(job: str, tmp_path: Path) -> None:
    make, flags = JOBS[job]
    make(tmp_path / "mine")
    asked = ["suggest", "mine", "--gpus", "2", "--seq-len", "16", "--global-batch-size", "16"]
    done = subprocess.run(
        [PLANNER, *asked, *flags, "--out", "bundle"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    read = re.search(r"^wrote bundle: read (\S+) first$", done.stdout + done.stderr, re.MULTILINE)
    assert read is not None
    readme = tmp_path / read[1]
    (trial,) = (each for each in commands(readme.read_text()) if re.search("--(use_)?cpu", each))
    output = run(readme.parent, "bash", "-c", trial).output()
    folder = re.match(r"\(cd (\w+) .* --output(?:_dir)? (\w+)\)$", trial)
    assert folder is not None
    final = readme.parent / folder[1] / folder[2]
    weights = "adapter_model.safetensors" if job == "lora" else "model*.safetensors"
    if folder[1] == "trainer":
        assert re.search(rf"starting from step 0 of {STEPS}, on \d x CPU", output)
        assert f'{{"step": {STEPS}, "loss": ' in output
        assert list(final.glob(weights))
        return
    (shown,) = re.findall(r"^(step 1/1000: .+), peak ", readme.read_text(), re.MULTILINE)
    first = output.partition("\nstep 1/50: ")[2].partition("\n")[0]
    assert masked(f"step 1/50: {first}") == masked(shown)
    assert "starting from random weights" in output
    assert f"\nstep {STEPS}/{STEPS}: loss " in output
    assert list((final / "final").glob(weights))
