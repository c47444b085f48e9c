"""Print, for folders of plans with weights, how far the logits of model.py are from transformers', as JSON.

Experts multiply in fp32 here; torchtitan's own rounds what goes into them to bf16, and with it some tokens' choices.
"""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import stand_ins
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

TOKENS = 64


def compare(folder: Path) -> dict[str, Any]:
    """Return what is read of the weights, and the largest difference between logits."""
    torch.set_num_threads(1)  # sums in one order; set here, as the process was begun before
    torch.manual_seed(0)
    sys.path.insert(0, str(folder))
    sys.modules.pop("model", None)
    model_spec = import_module("model").model_spec

    sys.path.pop(0)
    spec = model_spec()
    model = spec.model.build()
    model.init_states()
    adapter = spec.state_dict_adapter(spec.model, str(folder / "assets"))
    stored = load_file(folder / "assets" / "model.safetensors")
    wanted = set(adapter.to_hf(model.state_dict()))
    model.load_state_dict(
        adapter.from_hf({name: stored[name] for name in wanted & stored.keys()}), strict=False
    )
    theirs = AutoModelForCausalLM.from_pretrained(
        folder / "assets", dtype=torch.float32, attn_implementation="eager"
    )
    tokens = torch.randint(0, theirs.config.vocab_size, (1, TOKENS))
    positions = torch.arange(TOKENS)[None]
    with torch.no_grad():
        expected = theirs(tokens).logits
        masks = model.get_attention_masks(positions)
        found = model(tokens, positions=positions, attention_masks=masks)
    return {
        "absent": sorted(wanted - stored.keys()),
        "unread": sorted(stored.keys() - wanted),
        "difference": (found - expected).abs().max().item(),
        "largest": expected.abs().max().item(),
    }


if __name__ == "__main__":
    stand_ins.take_place()
    tensor: Any = torch.Tensor
    tensor.bfloat16 = lambda self: self
    print(json.dumps({name: compare(Path(name, "torchtitan")) for name in sys.argv[1:]}))
