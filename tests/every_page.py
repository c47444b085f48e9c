"""A page of every kind, by what it is."""

from pathlib import Path
from urllib.parse import urlencode

from browsing import GPT2

TOPOLOGIES = Path(__file__).parent / "topologies"
PIPELINE = "/plan?" + urlencode(
    {
        "model": "meta-llama/Llama-3.1-70B",
        "gpu": "h100-sxm-80gb",
        "gpus_per_node": "8",
        "nodes": "4",
        "framework": "megatron",
    }
)
TOPOLOGY = (TOPOLOGIES / "dgx1-v100-cube-mesh.txt").read_text()
WIRED, MANY_ADAPTERS = (
    "/plan?" + urlencode({"model": "gpt2", "topology": (TOPOLOGIES / f"{name}.txt").read_text()})
    for name in ("dgxa100_40gb_12mlx5_tabs", "a100_8gpu_18nic_oci_numa4_spaces")
)
EVERY_PAGE = {
    "form": "/",
    "plan": GPT2,
    "what-if": "/plan?model=gpt2&gpus_per_node=8&vs=gpus_per_node%3D4",
    "why not": f"{GPT2}&why=tp%3D8",
    "LoRA": "/plan?model=meta-llama/Llama-3.1-8B&gpu=rtx-4090&gpus_per_node=2&method=lora",
    "GRPO": "/plan?model=Qwen/Qwen2.5-0.5B&gpus_per_node=2&job=grpo",
    "pipeline": PIPELINE,
    "pipeline of 32 stages": "/plan?"
    + urlencode(
        {
            "model": "meta-llama/Llama-3.1-405B",
            "gpu": "h100-sxm-80gb",
            "gpus_per_node": "8",
            "nodes": "64",
            "framework": "megatron",
            "pipeline_parallel_size": "32",
        }
    ),
    "does not fit": "/plan?model=meta-llama/Llama-3.1-70B&gpu=rtx-4090&gpus_per_node=2",
    "error": "/plan?model=gpt2&gpu=h1000",
    "compare": "/compare?" + urlencode({"a": "model=gpt2&gpus_per_node=4", "b": "strategy=zero-3"}),
    "compare, asked": "/compare",
    "topology, asked": "/topology",
    "topology": "/topology?" + urlencode({"topology": TOPOLOGY}),
    "model": "/models/gpt2",
    "models": "/models",
    "gpu": "/gpus/a100-sxm-80gb",
    "gpus": "/gpus",
    "instances": "/instances",
    "instance": "/instances/p4de.24xlarge",
    "links": "/links",
    "link": "/links/nvlink-4",
    "frameworks": "/frameworks",
    "framework": "/frameworks/megatron",
    "accuracy": "/accuracy/torchtitan",
    "sources": "/accuracy",
    "term": "/terms/zero-3",
    "terms": "/terms",
    "rules": "/rules",
    "rule": "/rules/ONE005",
    "new": "/new",
    "doctor": "/doctor?times=1%3D43.1%2C2%3D43.1%2C4%3D48.2&batch_per_gpu=128",
    "batch": "/batch?gpus=4&global_batch_size=256&samples=40000&learning_rate=5e-5",
    "batch, one way": "/batch?gpus=4&global_batch_size=256&micro_batch_size=8&samples=40000",
    "check": "/check",
    "race": "/race",
    "docs": "/docs",
}
