"""What only the terminal answered, by REST: doctor, batches, replicas, machines; in the terminal's words, by its fields."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fastapi.testclient import TestClient
from huggingface_hub import constants

from api.machines import MOST_RUNS
from api.main import create_app
from api.settings import Settings
from planner.cli import cli

GPT2 = {"model": "gpt2", "cluster": {"gpu": "a100", "gpus_per_node": 2}}
RUN: dict[str, Any] = {
    "request": {**GPT2, "recipe": {"global_batch_size": 32}, "strategy": {"micro_batch_size": 4}},
    "step_seconds": 0.4,
}
SCRIPT = "import torch\n\nmodel = torch.nn.DataParallel(model)\n"
OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of"
    " 15.77 GiB of which 1.10 GiB is free. Of the allocated memory 13.00 GiB is allocated by PyTorch"
)


@pytest.fixture(scope="module")
def client() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_OFFLINE", True)
        yield TestClient(create_app(Settings(processes=0)), raise_server_exceptions=False)


def typed(*words: str, stdin: str = "") -> Any:
    """Return what the terminal prints as JSON."""
    return json.loads(CliRunner().invoke(cli, words, input=stdin).stdout)


def times(**seconds: float) -> list[dict[str, float]]:
    return [{"gpus": int(gpus[1:]), "seconds": taken} for gpus, taken in seconds.items()]


def test_timings_are_answered_as_in_the_terminal(client: TestClient) -> None:
    body = {"times": times(n4=48.2, n1=43.1, n2=43.1), "batch_per_gpu": 128, "fixed": "epochs"}
    answer = client.post("/v1/doctor/timings", json=body)
    flags = ("--times", "1=43.1,2=43.1,4=48.2", "--batch-per-gpu", "128", "--fixed", "epochs")
    assert answer.json() == typed("doctor", *flags, "--json")
    assert answer.json()["code"] == "TIM003"


def test_scripts_are_answered_as_in_the_terminal(client: TestClient) -> None:
    answer = client.post(
        "/v1/doctor/scripts", json={"scripts": [{"name": "-", "text": SCRIPT}]}
    ).json()
    assert answer == typed("doctor", "-", "--json", stdin=SCRIPT)
    (fault,) = answer["files"][0]["faults"]
    assert (fault["line"], fault["file"]) == (3, "-")


def test_a_log_is_answered_as_in_the_terminal_and_compared_with_a_plan(
    client: TestClient, tmp_path: Path
) -> None:
    plan = client.post("/v1/estimate", json={**GPT2, "strategy": {"micro_batch_size": 4}}).json()
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    answer = client.post("/v1/doctor/log", json={"text": OUT_OF_MEMORY, "plan": plan}).json()
    flags = ("--error", "-", "--plan", str(tmp_path / "plan.json"))
    assert answer == typed("doctor", *flags, "--json", stdin=OUT_OF_MEMORY)
    assert answer["cause"]["symptom"]["page"]
    assert any("the plan's peak" in line for line in answer["more"])


def test_a_batch_is_answered_as_in_the_terminal(client: TestClient) -> None:
    body = {"model": "gpt2", "gpus_per_node": 4, "global_batch_size": 256, "samples": 40_000}
    answer = client.post("/v1/batch", json=body).json()
    flags = ("--gpus", "4", "--global-batch-size", "256", "--samples", "40000")
    assert answer.pop("notes") == []
    assert answer == typed("batch", "gpt2", *flags, "--json")


def test_replicas_are_answered_as_in_the_terminal(client: TestClient) -> None:
    answer = client.post("/v1/replicas", json=GPT2).json()
    assert answer == typed("replicas", "gpt2", "--gpus", "2", "--gpu", "a100", "--json")
    assert len(answer["nn_data_parallel_exchanges"]) == 5


def test_a_machine_of_runs_changes_what_is_estimated_on_it(client: TestClient) -> None:
    request = RUN["request"]
    larger = {**request, "recipe": {**request.get("recipe", {}), "sequence_length": 512}}
    runs = [RUN, {**RUN, "request": larger, "step_seconds": 0.2}]
    made = client.post("/v1/machines", json={"runs": runs, "name": "lab"})
    machine = made.json()["machine"]
    assert (machine["kind"], machine["name"], machine["cluster"]["gpus_per_node"]) == (
        "planner-machine",
        "lab",
        2,
    )
    assert [check["measured_seconds"] for check in made.json()["checks"]] == [0.4, 0.2]
    plain = client.post("/v1/estimate", json=RUN["request"]).json()["time"]["step_seconds"]
    body = {**RUN["request"], "machine": machine}
    own = client.post("/v1/estimate", json=body).json()["time"]["step_seconds"]
    assert abs(own - 0.4) < abs(plain - 0.4)


def test_runs_are_added_to_a_machine_once(client: TestClient) -> None:
    machine = client.post("/v1/machines", json={"runs": [RUN]}).json()["machine"]
    other = {**RUN, "step_seconds": 0.41}
    again = client.post("/v1/machines", json={"runs": [RUN, other], "machine": machine}).json()
    assert [run["step_seconds"] for run in again["machine"]["runs"]] == [0.4, 0.41]


@pytest.mark.parametrize(
    ("path", "body", "field", "says"),
    [
        ("doctor/timings", {"times": times(n1=5)}, "times", "times: must have 2 or more items"),
        ("doctor/timings", {"times": [*times(n1=5), *times(n1=6)]}, "times", "two times"),
        ("doctor/timings", {"times": times(n0=5, n1=5)}, "times.0.gpus", "must be at least 1"),
        (
            "doctor/timings",
            {"times": times(n1=5, n2=5), "start_up_seconds": 5},
            "start_up_seconds",
            "seconds of times",
        ),
        ("doctor/timings", {"time": []}, "time", "did you mean times?"),
        (
            "doctor/timings",
            {"times": [{"gpus": 1, "second": 2}]},
            "times.0.second",
            "did you mean seconds?",
        ),
        ("doctor/scripts", {"scripts": []}, "scripts", "scripts: must have 1 or more items"),
        (
            "doctor/scripts",
            {"scripts": [{"name": "a.py", "text": "no python"}]},
            "",
            "POST /v1/doctor/log",
        ),
        ("doctor/scripts", {"scripts": [{"name": "a.py", "text": ""}] * 2}, "scripts", "one name"),
        ("doctor/log", {"text": ""}, "text", "at least 1 character"),
        ("doctor/log", {"text": "\0" * 9}, "text", "binary, no log"),
        ("doctor/log", {"text": OUT_OF_MEMORY, "plan": {}}, "plan", "POST /v1/suggest"),
        ("race", {}, "kind", "kind: is missing"),
        ("race", {"kind": "race", "plans": []}, "plans", "must have 1 or more items"),
        ("race", {"kind": "race", "plan": []}, "plan", "did you mean plans?"),
        ("batch", {}, "global_batch_size", "needs global_batch_size, or micro_batch_size"),
        ("batch", {"gpus_per_node": 3, "global_batch_size": 64}, "global_batch_size", "63 or 66"),
        (
            "batch",
            {"gpus_per_node": 8, "data_parallel_size": 3, "micro_batch_size": 1},
            "data_parallel_size",
            "do not divide",
        ),
        (
            "batch",
            {"micro_batch_size": 1, "tuned_batch_size": 9},
            "tuned_batch_size",
            "add learning_rate",
        ),
        (
            "batch",
            {"micro_batch_size": 1, "model": "../../etc/passwd"},
            "model",
            "is not a model id",
        ),
        ("replicas", {"model": "gpt2", "cluster": {"gpu": "h1000"}}, "cluster.gpu", "h100"),
        ("replicas", {"model": "gpt2"}, "strategy", "cluster.gpus_per_node 2 or more"),
        ("replicas", {"model": "./config.json"}, "model", "is not a model id"),
        ("machines", {"runs": [RUN] * (MOST_RUNS + 1)}, "runs", f"at most {MOST_RUNS} items"),
        ("machines", {"runs": []}, "runs", "runs: must have 1 or more items"),
        ("machines", {"runs": [{"request": GPT2}]}, "runs.0", "nothing that was measured"),
        ("machines", {"runs": [RUN], "machine": {}}, "machine.kind", "POST /v1/machines"),
        (
            "machines",
            {"runs": [{**RUN, "request": {**RUN["request"], "model": "./config.json"}}]},
            "runs",
            "is not a model id",
        ),
        ("machines", {"runs": [{**RUN, "step_seconds": 4e5}]}, "runs", "took"),
        ("machines", {"runs": [{**RUN, "step_second": 1}]}, "runs.0.step_second", "did you mean"),
    ],
)
def test_what_cannot_be_answered_is_said_by_field(
    client: TestClient, path: str, body: dict[str, Any], field: str, says: str
) -> None:
    answer = client.post(f"/v1/{path}", json=body)
    assert answer.status_code in (404, 422), answer.text
    problem = answer.json()
    assert problem["field"] == field
    assert says in f"{problem['detail']} {problem['hint']}"
    assert "--" not in f"{problem['detail']} {problem['hint']}"


def test_a_machine_may_not_grow_without_end(client: TestClient) -> None:
    runs = [{**RUN, "step_seconds": 0.4 + number / 1000} for number in range(MOST_RUNS)]
    machine = client.post("/v1/machines", json={"runs": runs}).json()["machine"]
    answer = client.post(
        "/v1/machines", json={"runs": [{**RUN, "step_seconds": 0.3}], "machine": machine}
    )
    assert (answer.status_code, answer.json()["field"]) == (422, "runs")


def test_a_model_of_this_machine_is_not_read_for_runs(client: TestClient, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    request = {**RUN["request"], "model": str(tmp_path / "config.json")}
    answer = client.post("/v1/machines", json={"runs": [{**RUN, "request": request}]})
    assert answer.status_code == 422
