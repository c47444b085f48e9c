"""The pages of doctor, batches and check say what the planner says, and take what comes."""

import json
import re
from collections.abc import Mapping
from html import unescape
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.main import create_app
from api.settings import Settings
from planner.doctor.diagnosis import diagnose
from planner.doctor.timings import Timings

HTML = {"accept": "text/html"}
SCRIPT = """from accelerate import Accelerator
accelerator = Accelerator()
accelerator.prepare(model, optimizer, loader)
for batch in loader:
    loss = model(**batch).loss
    accelerator.backward(loss)
"""
RAN: Mapping[str, Any] = {
    "name": "ddp",
    "state": "failed",
    "steps": 0,
    "planned_step_seconds": 1.0,
    "planned_peak_bytes": 1.0,
    "planned_reserved_bytes": 1.0,
}
TWICE = json.dumps({"kind": "race", "plans": [RAN, RAN]})
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


@pytest.fixture(scope="module")
def client() -> TestClient:
    """A client of the app."""
    return TestClient(create_app(Settings(processes=0)), raise_server_exceptions=False)


def told(text: str) -> str:
    """What a page answers, without what it asks."""
    answer = text.partition('<section class="told"')[2].partition("</section>")[0]
    return unescape(answer)


def test_times_are_diagnosed_as_in_a_terminal(client: TestClient) -> None:
    answer = client.get(
        "/doctor", params={"times": "1=43.1, 2=43.1, 4=48.2", "batch_per_gpu": "128"}
    )
    found = diagnose(Timings(seconds={1: 43.1, 2: 43.1, 4: 48.2}, batch_per_gpu=128))
    assert found.code == "TIM003"
    page = told(answer.text)
    assert "<code>planner doctor train.py</code>" in page
    for text in (found.next.partition("`")[0], found.batches, *found.arithmetic, "/rules/TIM003"):
        assert text in page
    assert "--fixed" not in page
    assert 'value="1=43.1, 2=43.1, 4=48.2"' in answer.text


def test_a_script_is_read_and_its_faults_are_links(client: TestClient) -> None:
    answer = client.post("/doctor", data={"script": SCRIPT})
    assert answer.status_code == 200
    assert "/rules/DOC001" in told(answer.text)
    assert "Line 3: " in told(answer.text)
    assert "accelerator.prepare(model, optimizer, loader)\nfor batch" in answer.text


def test_a_message_has_its_cause_and_what_to_do_first(client: TestClient) -> None:
    page = told(client.post("/doctor", data={"log": OOM}).text)
    assert "CUDA out of memory" in page
    assert "<dt>First</dt>" in page
    assert "/terms/oom" in page
    assert client.get("/terms/oom").status_code == 200
    nothing = told(client.post("/doctor", data={"log": "all is well"}).text)
    assert "Nothing known in 1 line" in nothing
    remark = "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default"
    healthy = told(client.post("/doctor", data={"log": f"{remark}\nloss: 1.2"}).text)
    assert "No error is in the log" in healthy


@pytest.mark.parametrize(
    ("gpus", "said"),
    [("4", "8 per GPU x 8 accumulation x 4 data parallel = 256"), ("8", "8 per GPU x 4 acc")],
)
def test_a_batch_is_worked_out(client: TestClient, gpus: str, said: str) -> None:
    query = {"gpus": gpus, "global_batch_size": "256", "micro_batch_size": "8", "samples": "40000"}
    page = told(client.get("/batch", params=query).text)
    assert said in page
    assert "157 per epoch of 40,000 samples" in page
    assert "gradient_accumulation_steps" in page


def test_every_way_to_make_a_batch_is_listed(client: TestClient) -> None:
    page = told(client.get("/batch", params={"gpus": "4", "global_batch_size": "256"}).text)
    assert page.count("<tr>") == 1 + 7


def test_a_configuration_is_judged_and_mended(client: TestClient) -> None:
    config = '{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4,\n"gradient_accumulation_steps": 2}'
    sent = {"file1": config, "model": "gpt2", "gpus_per_node": "4", "gpu": "a100-sxm-80gb"}
    page = told(client.post("/check", data=sent).text)
    assert "/rules/CFG001" in page
    assert '+{"train_batch_size": 32' in page
    assert "Trains with ddp" in page
    assert "a step" in page


@pytest.mark.parametrize(
    ("text", "tool"),
    [
        (
            "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: 2",
            "accelerate",
        ),
        (
            "[parallelism]\ntensor_parallel_degree = 2\n[training]\nlocal_batch_size = 2",
            "torchtitan",
        ),
        (
            "from transformers import TrainingArguments\nTrainingArguments(output_dir='x', bf16=True)",
            "TrainingArguments",
        ),
        ("#!/bin/bash\ntorchrun --nproc-per-node 2 train.py", "launch"),
        ('{"zero_optimization": {"stage": 2}}', "DeepSpeed"),
    ],
)
def test_the_language_of_a_pasted_file_is_seen(client: TestClient, text: str, tool: str) -> None:
    page = told(client.post("/check", data={"file1": text}).text)
    assert tool in page.partition("</h2>")[0]


@pytest.mark.parametrize(
    ("path", "sent", "label", "said"),
    [
        ("/doctor", {"times": "1=43.1"}, "Run times", "two or more"),
        ("/doctor", {"times": "1=9,2=8", "fixed": "x"}, "had in common", "neither"),
        (
            "/doctor",
            {"times": "1=9,2=8", "start_up_seconds": "9"},
            "Start-up",
            "as long as a whole run",
        ),
        ("/doctor", {"times": "1=9,2=8", "loader_seconds": "nan"}, "Loaders alone", "is no number"),
        ("/doctor", {"fixed": "epochs"}, "Run times", "no times"),
        ("/batch", {"gpus": "4.5", "global_batch_size": "8"}, "GPUs", "is no whole number"),
        ("/batch", {"gpus": "4"}, "lobal batch size", "batch"),
        ("/batch", {"gpus": "4", "global_batch_size": "255"}, "lobal batch size", "255"),
        ("/check", {"file1": "{"}, "File", "cannot be read"),
        ("/check", {"model": "gpt2"}, "File", "nothing to check"),
        ("/check", {"file1": "", "file2": " "}, "File", "nothing was filled in"),
        ("/batch", {"gpus": "", "samples": ""}, "GPUs", "nothing was filled in"),
        ("/check", {"command": "ls"}, "Command line", "command line configures nothing"),
        ("/check", {"file2": "{"}, "Second file", "cannot be read"),
        ("/doctor", {"times": "1=9,2=x"}, "Run times", "Such as 1=43.1,2=43.1,4=48.2: GPUs"),
        ("/check", {"command": "torchrun x.py", "gpu": "h1000"}, "GPU", "h1000"),
        ("/batch", {"gpuz": "4"}, "", "nknown field"),
        ("/race", {"race": "{"}, "Race", "no JSON"),
        ("/race", {"race": "[" * 9999}, "Race", "no JSON"),
        ("/race", {"race": '{"kind": "race", "plans": []}'}, "Race", "plans: must have 1 or more"),
        ("/race", {"race": TWICE}, "Race", "two plans of one name"),
    ],
)
def test_what_is_wrong_is_told_at_its_label(
    client: TestClient, path: str, sent: dict[str, str], label: str, said: str
) -> None:
    if path in {"/check", "/race"}:
        answer = client.post(path, data=sent, headers=HTML)
    else:
        answer = client.get(path, params=sent, headers=HTML)
    assert answer.status_code == 422
    alert = unescape(answer.text.partition('role="alert"')[2].partition("</div>")[0])
    assert label in alert
    assert said in alert
    assert "--" not in alert.replace("--gpu", "")
    for name, text in sent.items():
        assert text in unescape(answer.text) or name == "gpuz"


def test_doctor_is_sent_only_with_something_to_read(client: TestClient) -> None:
    page = client.get("/doctor").text
    required = re.findall(r'name="(\w+)"[^>]*\srequired\b', page)
    assert required == ["times", "log", "script"]
    answer = client.post("/doctor", data={"log": ""}, headers=HTML)
    assert answer.status_code == 422
    assert "othing was filled in" in answer.text


@pytest.mark.parametrize("path", ["/doctor", "/check", "/race"])
@pytest.mark.parametrize(
    "text", ["\x00" * 5000, "(" * 60_000, "\U0001f600" * 4000, "x: &a [*a, *a]\n" * 500]
)
def test_a_hostile_text_is_a_page(client: TestClient, path: str, text: str) -> None:
    names = {"/doctor": ("script", "log"), "/check": ("file1", "command"), "/race": ("race",)}
    for name in names[path]:
        answer = client.post(path, data={name: text}, headers=HTML)
        assert answer.status_code in {200, 422}, (name, answer.text[:300])
        assert "<form" in answer.text


def test_a_note_of_a_check_names_the_controls_of_the_page(client: TestClient) -> None:
    files = {"file1": '{"zero_optimization": {"stage": 2}, "train_batch_size": 8}'}
    answer = told(client.post("/check", data=files).text)
    assert "no model is named (\u201cModel\u201d, with \u201cGPUs per node\u201d" in answer
    assert "--" not in answer


def test_what_is_wrong_with_the_whole_layout_has_no_line(client: TestClient) -> None:
    command = "torchrun --nproc-per-node 2 train.py --per_device_train_batch_size 64"
    asked = {"command": command, "model": "meta-llama/Llama-2-7b-hf", "gpu": "rtx-3090"}
    page = told(client.post("/check", data=asked).text)
    (note,) = re.findall(r">CHK001<.*?<p class=\"note\">(.*?)</p>", page, re.DOTALL)
    assert note == "<code>planner memory</code> says what would fit"
