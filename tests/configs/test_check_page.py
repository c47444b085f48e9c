"""docs/check.md cannot lie: its example is run.

`pytest --update-golden tests/configs/test_check_page.py` rewrites it; read the diff.
"""

from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path

import pytest
from test_docs import check_block

from planner import cli
from planner.configs.rules import RULES
from planner.explain import glossary

PAGE = Path(__file__).parents[2] / "docs/check.md"
FILES = {
    "ds_config.json": """{
  "train_batch_size": 64,
  "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": 4,
  "bf16": {"enabled": true},
  "zero_optimization": {
    "stage": 3,
    "stage3_gather_16bit_weights_on_model_save": false
  }
}
""",
    "train.sh": "deepspeed train.py --deepspeed ds_config.json --num_gpus 8 \\\n  --output_dir out --fp16 True --per_device_train_batch_size 4\n",
}
COMMAND = "planner check ds_config.json train.sh --model meta-llama/Llama-3.1-8B --gpus 8 --gpu a100 --seq-len 4096"


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


def test_the_example_is_the_commands_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, update: bool
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("sys.argv", COMMAND.split())
    printed = StringIO()
    with redirect_stdout(printed), suppress(SystemExit):
        cli.main()
    shown = "".join(f"$ cat {name}\n{text}" for name, text in FILES.items())
    body = f"```console\n{shown}$ {COMMAND}\n{printed.getvalue()}```\n"
    check_block("check-example", body, update=update, page=PAGE)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_rule_is_explained_with_reason_way_out_and_source(rule: object) -> None:
    code = glossary.find_code(getattr(rule, "code", ""))
    headings = [each.heading for each in glossary.paragraphs(code.text)]
    assert headings[0] == ""
    assert headings[1:4] == ["Why", "Instead", "Source"]
    assert set(headings[4:]) <= {"Message"}
