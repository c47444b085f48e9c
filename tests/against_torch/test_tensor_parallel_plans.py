"""Which models transformers divides by tensor parallelism, as the glossary says."""

from transformers import CONFIG_MAPPING

from planner.explain.glossary import find_term

PLANNED = {
    "Llama": ("llama",),
    "Mistral": ("mistral",),
    "Mixtral": ("mixtral",),
    "Qwen 2 and 3": ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe"),
    "Gemma": ("gemma", "gemma2", "gemma3_text"),
    "Phi": ("phi", "phi3"),
    "OLMo": ("olmo", "olmo2"),
    "Granite": ("granite", "granitemoe"),
    "GLM": ("glm4_moe",),
    "DeepSeek": ("deepseek_v2", "deepseek_v3"),
    "StarCoder2": ("starcoder2",),
    "GPT-NeoX": ("gpt_neox",),
}
UNPLANNED = {
    "GPT-2": "gpt2",
    "GPT-J": "gptj",
    "OPT": "opt",
    "BLOOM": "bloom",
    "Falcon": "falcon",
    "MPT": "mpt",
    "T5": "t5",
    "BERT": "bert",
    "gpt-oss": "gpt_oss",
}


def test_the_glossary_says_which_models_have_a_plan() -> None:
    *first, last = PLANNED
    *others, least = UNPLANNED
    text = find_term("tensor-parallelism").text
    assert f"has plans for {', '.join(first)} and {last}, and none for" in text
    assert f"none for {', '.join(others)} and {least}." in text


def test_the_classes_have_these_plans() -> None:
    for kinds in PLANNED.values():
        for kind in kinds:
            assert CONFIG_MAPPING[kind].base_model_tp_plan, kind
    for kind in UNPLANNED.values():
        assert not getattr(CONFIG_MAPPING[kind], "base_model_tp_plan", None), kind
