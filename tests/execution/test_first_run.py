"""From `planner suggest` to fifty steps, by pasting nothing but what was printed."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from launched import CLASSES, CLASSIFIER, GPT2, LLAMA, VIT, run
from preloading import pythons
from reference import weights_of
from test_trainer_tasks import processor_of, write_images
from texts import draw_texts, write_chat_tokenizer, write_texts, write_tokenizer

pytestmark = pytest.mark.usefixtures("preloaded")

PLANNER = str(Path(sys.executable).with_name("planner"))
STEPS = 50
ASKED = ("suggest", "mine", "--gpus", "2", "--global-batch-size", "16")
MARKED = (
    "{% for message in messages %}<|{{ message.role }}|> {% if message.role == 'assistant' %}"
    "{% generation %}{{ message.content }} <end>{% endgeneration %}"
    "{% else %}{{ message.content }} <end>{% endif %} {% endfor %}"
)
PIP = f"""#!{sys.executable}
import importlib.metadata, pathlib, sys
from packaging.requirements import Requirement
[_, install, option, file] = sys.argv
for line in pathlib.Path(file).read_text().splitlines():
    if not line.startswith("#"):
        wanted = Requirement(line)
        assert wanted.specifier.contains(importlib.metadata.version(wanted.name)), line
"""
"""Nothing is installed: what a file names is there, in a release that it allows."""


def suggest(folder: Path, *flags: str) -> Path:
    """Plan as a new user does; return the README that is named."""
    command = [PLANNER, *ASKED, *flags, "--out", "bundle"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    read = re.search(r"^wrote bundle: read (\S+) first$", done.stdout + done.stderr, re.MULTILINE)
    assert read is not None
    return folder / read[1]


def configuration(fields: Mapping[str, Any]) -> transformers.PretrainedConfig:
    return transformers.AutoConfig.for_model(**fields)


def chats(folder: Path) -> Path:
    weights_of(LLAMA, folder / "mine")
    write_chat_tokenizer(folder / "mine", MARKED)
    roles = [{"role": "user", "content": "w1 w2"}, {"role": "assistant", "content": "w3 w4"}]
    data = folder / "data.jsonl"
    data.write_text((json.dumps({"messages": roles}) + "\n") * 48)
    return data


def classified(folder: Path) -> Path:
    torch.manual_seed(0)
    auto: Any = transformers.AutoModelForSequenceClassification
    auto.from_config(configuration(CLASSIFIER)).save_pretrained(folder / "mine")
    write_tokenizer(folder / "mine")
    return write_texts(folder / "data.jsonl", draw_texts(count=48, longest=14), classes=CLASSES)


def pictures(folder: Path) -> Path:
    torch.manual_seed(0)
    auto: Any = transformers.AutoModelForImageClassification
    auto.from_config(configuration(VIT)).save_pretrained(folder / "mine")
    processor_of(folder / "mine")
    return write_images(folder / "images")


TUNED: dict[str, tuple[Callable[[Path], Path], tuple[str, ...]]] = {
    "lora": (chats, ("--method", "lora", "--seq-len", "16")),
    "classifier": (classified, ("--seq-len", "16")),
    "images": (pictures, ()),
}
"""The model and the data that the user has, and what is asked for."""


def commands(text: str) -> list[str]:
    """Return what the README's blocks of commands hold, each a paste."""
    return re.findall(r"^```bash\n(.*?)\n```$", text, re.MULTILINE | re.DOTALL)


def masked(line: str) -> str:
    """Return a line of progress without its figures, or what stands for them."""
    return re.sub(r"\d+(?:[.,]\d+)*(?:e[+-]\d+)?%?|\b[LN]\b", "#", line).replace("#/#", "#")


def test_a_new_users_first_run_ends_with_a_model(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text(json.dumps(GPT2))
    readme = suggest(tmp_path, "--seq-len", "16")
    (trial,) = (each for each in commands(readme.read_text()) if "--cpu" in each)
    output = run(readme.parent, "bash", "-c", trial).output()
    folder = re.match(r"\(cd (\w+) .* --output (\w+)\)$", trial)
    assert folder is not None
    (shown,) = re.findall(r"^(step 1/1000: .+), peak ", readme.read_text(), re.MULTILINE)
    first = output.partition("\nstep 1/50: ")[2].partition("\n")[0]
    assert masked(f"step 1/50: {first}") == masked(shown)
    assert "starting from random weights" in output
    assert f"\nstep {STEPS}/{STEPS}: loss " in output
    assert list((readme.parent / folder[1] / folder[2] / "final").glob("model*.safetensors"))


@pytest.mark.parametrize("job", TUNED)
def test_each_line_of_the_readme_works_as_it_is_pasted(job: str, tmp_path: Path) -> None:
    """The user names the data, and that there is no GPU; three steps are one look at 48 samples."""
    make, flags = TUNED[job]
    data = make(tmp_path)
    readme = suggest(tmp_path, *flags, "--samples", "48", "--no-compile")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "pip").write_text(PIP)
    (tmp_path / "bin" / "pip").chmod(0o755)
    printed = {}
    for line in "\n".join(commands(readme.read_text())).splitlines():
        mine = re.sub(r"(--dataset_name) \S+", rf"\1 {data}", line)
        own = " --use_cpu true" if "launch.sh" in line and "--use_cpu" not in line else ""
        # What has read its imports before reads scripts alone.
        python = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        python = python if "python -c" in line else pythons()["PATH"]
        path = f"{tmp_path / 'bin'}:{python}"
        command = mine.partition("  #")[0] + own
        printed[line] = run(readme.parent, "bash", "-c", command, PATH=path).output()
    trial, run_line = (line for line in printed if "launch.sh" in line)
    tried = re.search(r"--max_steps (\d+)", trial)
    assert tried is not None
    for line, steps in ((run_line, 3), (trial, int(tried[1]))):
        assert f'{{"step": {steps}, "loss": ' in printed[line]
    trainer = readme.parent / "trainer"
    assert list((trainer / "trial").glob("*model.safetensors"))
    assert list((trainer / "output").glob("*model.safetensors"))
    for merge in re.findall(r"`(AutoPeftModelForCausalLM\..+?)`", readme.read_text()):
        given = f"from peft import AutoPeftModelForCausalLM; {merge}"
        run(readme.parent, sys.executable, "-c", given).output()
    assert (readme.parent / "merged" / "model.safetensors").exists() == (job == "lora")
