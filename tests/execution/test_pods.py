"""What a pod runs, run here: its command and arguments, on a folder in the volume's place."""

from pathlib import Path
from typing import Any

import yaml
from launched import TINY, Run, run, write
from texts import draw_texts, write_texts, write_tokenizer


def container_of(folder: Path) -> dict[str, Any]:
    job = yaml.safe_load((folder / "launchers" / "job.yaml").read_text())
    return dict(job["spec"]["template"]["spec"]["containers"][0])


def start_pod(folder: Path, *arguments: str) -> Run:
    """Start the container of job.yaml; the folders beside it are the image's and the volume."""
    container = container_of(folder / "bundle")
    words = [*container["command"], *container["args"]]
    words = [word.replace("/storage", str(folder / "storage")) for word in words]
    here = container["workingDir"].replace("/bundle", str(folder / "bundle"))
    return run(Path(here), *words, *arguments, "--cpu")


def test_a_pod_trains_and_one_that_follows_goes_on(tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    storage.mkdir()
    write(tmp_path / "bundle", TINY, "torchrun")
    texts = write_texts(storage / "texts.jsonl", draw_texts(count=40, longest=25))
    texts.rename(storage / "corpus.txt")  # of a .txt, each line is a text
    tokenizer = str(write_tokenizer(storage / "tokenizer"))
    own = ("--tokenizer", tokenizer, "--save-every", "1", "--no-save-model")
    start_pod(tmp_path, *own, "--steps", "2").finish()
    assert (storage / "checkpoints" / "step-2").is_dir()
    output = start_pod(tmp_path, *own, "--steps", "3").output()
    assert f"starting from checkpoint {storage}/checkpoints/step-2" in output
    assert "step 3/3" in output
    assert "step 2/3" not in output
