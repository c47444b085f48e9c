import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

ASK = """
import json, sys
from pathlib import Path

sys.path = [sys.argv[1], *(path for path in sys.path if not (Path(path) / "web").is_dir())]
from api.main import create_app
from api.settings import Settings
from fastapi.testclient import TestClient

client = TestClient(create_app(Settings(processes=0)), raise_server_exceptions=False)
html = {"accept": "text/html"}
answers = {
    "suggest": client.post("/v1/suggest", json={"model": "gpt2"}),
    "estimate": client.post("/v1/estimate", json={"model": "gpt2", "Gpus": 4}, headers=html),
    "page": client.get("/", headers=html),
    "health": client.get("/healthz"),
    "openapi": client.get("/openapi.json"),
}
shown = {name: [answer.status_code, answer.headers["content-type"]] for name, answer in answers.items()}
shown["modules"] = sorted({"web"} & sys.modules.keys())
shown["family"] = answers["suggest"].json()["chosen"]["family"]
print(json.dumps(shown))
"""


def test_rest_serves_from_a_tree_without_pages(tmp_path: Path) -> None:
    for folder in ("api", "planner", "data"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    result = subprocess.run(
        [sys.executable, "-c", ASK, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr
    problem = "application/problem+json"
    assert json.loads(result.stdout.splitlines()[-1]) == {
        "suggest": [200, "application/json"],
        "estimate": [422, problem],
        "page": [404, problem],
        "health": [200, "application/json"],
        "openapi": [200, "application/json"],
        "modules": [],
        "family": "ddp",
    }
