"""From `planner suggest` to a model, by what the bundle's README says and nothing else."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from launched import DEEP_LLAMA, GPT2, run
from texts import draw_texts, write_texts, write_tokenizer

PLANNER = str(Path(sys.executable).with_name("planner"))
PLAN = ("--gpus", "2", "--global-batch-size", "16", "--precision", "fp32", "--seq-len", "16")
CASES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "alone": (GPT2, ()),
    "pipeline": (DEEP_LLAMA, ("--pp", "2", "--micro-batch-size", "2")),
}


def launches(readme: str) -> list[tuple[str, str]]:
    """Return each target's folder and the line that starts it."""
    shown = re.findall(
        r"^cd (\S+) && pip install -r requirements.txt\n(bash .+)$", readme, re.MULTILINE
    )
    assert len(shown) == readme.count("```bash\ncd ")
    return shown


@pytest.mark.parametrize("case", CASES)
def test_the_readmes_line_trains(case: str, tmp_path: Path) -> None:
    """Whole and in stages each target imports what it needs by itself; Trainer's lines are test_first_run's."""
    config, flags = CASES[case]
    (tmp_path / "config.json").write_text(json.dumps(config))
    plan = [PLANNER, "suggest", "config.json", *PLAN, *flags, "--out", "bundle"]
    done = subprocess.run(plan, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    shown = launches((tmp_path / "bundle" / "README.md").read_text())
    assert shown
    for folder, line in shown:
        target = tmp_path / "bundle" / folder
        corpus = write_texts(tmp_path / "corpus.jsonl", draw_texts(64, 20), classes=3)
        name = re.search(r"--data (\S+)", line)
        assert name is not None
        shutil.copy(corpus, target / Path(name[1]).with_suffix(".jsonl"))
        ours = ("--cpu", "--steps", "2", "--tokenizer", str(tokenizer))
        command = line.replace(".txt ", ".jsonl ").split()
        output = run(target, *command, *ours).output()
        assert output.count("tokens/s (plan ") == 2
        final = target / "checkpoints" / "final"
        assert sum(path.stat().st_size for path in final.glob("model*.safetensors")) > 0
        assert (final / "tokenizer.json").exists()
