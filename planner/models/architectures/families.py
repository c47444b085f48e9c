"""The dense decoder-only families: what their modelling code in transformers 5.23 fixes.

The defaults are the config classes' own, for configs that leave a key out.
"""

from collections.abc import Mapping
from dataclasses import replace

from planner.models.architectures.decoder import reader
from planner.models.architectures.decoder_family import POST_NORM, DecoderFamily
from planner.models.architectures.norms import Norm


def _sizes(  # noqa: PLR0913, PLR0917 - the seven sizes of a decoder
    vocabulary: int,
    hidden: int,
    layers: int,
    heads: int,
    inner: int | None,
    positions: int,
    groups: int | None = None,
    head_dim: int | None = None,
) -> Mapping[str, int]:
    sizes = {
        "vocabulary": vocabulary,
        "hidden": hidden,
        "layers": layers,
        "heads": heads,
        "inner": inner,
        "positions": positions,
        "groups": groups,
        "head_dim": head_dim,
    }
    return {name: value for name, value in sizes.items() if value is not None}


_LLAMA_SIZES = _sizes(32000, 4096, 32, 32, 11008, 2048)
_ATTENTION_BIAS = ("attention_bias", False)
_MLP_BIAS = ("mlp_bias", False)
_LAYER_NORMS = ("ln_1", "ln_2")
_GPT_DROPOUTS = ("embd_pdrop", "resid_pdrop", "attn_pdrop")
_FOUR_NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    POST_NORM,
)


LLAMA = DecoderFamily(
    defaults=_LLAMA_SIZES,
    qkv_bias=_ATTENTION_BIAS,
    output_bias=_ATTENTION_BIAS,
    mlp_bias=_MLP_BIAS,
)
MISTRAL = DecoderFamily(defaults=_sizes(32000, 4096, 32, 32, 14336, 131072, 8), default_window=4096)
QWEN2 = DecoderFamily(defaults=_sizes(151936, 4096, 32, 32, 22016, 32768, 32), qkv_bias=True)
QWEN3 = DecoderFamily(
    defaults=_sizes(151936, 4096, 32, 32, 22016, 32768, 32, 128),
    qkv_bias=_ATTENTION_BIAS,
    output_bias=_ATTENTION_BIAS,
    query_key_norm="head",
)
GEMMA = DecoderFamily(
    defaults=_sizes(256000, 3072, 28, 16, 24576, 8192, 16, 256),
    norm=Norm.RMS_FP32,
    qkv_bias=_ATTENTION_BIAS,
    output_bias=_ATTENTION_BIAS,
    is_tied=True,
    activation="gelu_pytorch_tanh",
)
GEMMA2 = DecoderFamily(
    defaults=_sizes(256000, 2304, 26, 8, 9216, 8192, 4, 256),
    norm=Norm.RMS_FP32,
    norms=_FOUR_NORMS,
    qkv_bias=_ATTENTION_BIAS,
    output_bias=_ATTENTION_BIAS,
    is_tied=True,
    activation="gelu_pytorch_tanh",
    sliding_period=2,
)
GEMMA3 = DecoderFamily(
    defaults=_sizes(262208, 2304, 26, 8, 9216, 131072, 4, 256),
    norm=Norm.RMS_FP32,
    norms=_FOUR_NORMS,
    qkv_bias=_ATTENTION_BIAS,
    output_bias=_ATTENTION_BIAS,
    query_key_norm="head",
    is_tied=True,
    activation="gelu_pytorch_tanh",
    sliding_period=6,
)
PHI = DecoderFamily(
    defaults=_sizes(51200, 2048, 24, 32, 8192, 2048),
    norm=Norm.LAYER,
    norms=("input_layernorm",),
    is_parallel=True,
    is_gated=False,
    qkv_bias=True,
    output_bias=True,
    mlp_bias=True,
    head_bias=True,
    query_key_norm="head",
    query_key_norm_flag="qk_layernorm",
    activation="gelu_new",
    dropouts=("embd_pdrop", "resid_pdrop", "attention_dropout"),
)
PHI3 = DecoderFamily(
    defaults=_sizes(32064, 3072, 32, 32, 8192, 4096),
    is_fused=True,
    keeps_fused_projection=True,
    dropouts=("embd_pdrop", "resid_pdrop", "attention_dropout"),
)
OLMO = DecoderFamily(
    defaults=_sizes(50304, 4096, 32, 32, 11008, 2048),
    norm=Norm.LAYER_BARE,
    qkv_bias=_ATTENTION_BIAS,
    output_bias=_ATTENTION_BIAS,
)
OLMO2 = DecoderFamily(
    defaults=_sizes(50304, 4096, 32, 32, 11008, 2048),
    norm=Norm.RMS_FP32,
    norms=("post_attention_layernorm", POST_NORM),
    qkv_bias=_ATTENTION_BIAS,
    output_bias=_ATTENTION_BIAS,
    query_key_norm="all",
    sliding_period=4,
)
SMOLLM3 = DecoderFamily(
    defaults=_sizes(128256, 2048, 36, 16, 11008, 32768, 4),
    qkv_bias=_ATTENTION_BIAS,
    output_bias=_ATTENTION_BIAS,
    mlp_bias=_MLP_BIAS,
    is_tied=True,
)
STARCODER2 = DecoderFamily(
    defaults=_sizes(49152, 3072, 30, 24, 12288, 4096, 2),
    norm=Norm.LAYER,
    is_gated=False,
    qkv_bias=("use_bias", True),
    output_bias=("use_bias", True),
    mlp_bias=("use_bias", True),
    is_tied=True,
    activation="gelu_pytorch_tanh",
    dropouts=("embedding_dropout", "residual_dropout", "attention_dropout"),
)
GPT_NEO = DecoderFamily(
    defaults=_sizes(50257, 2048, 24, 16, None, 2048),
    norm=Norm.LAYER,
    norms=_LAYER_NORMS,
    is_gated=False,
    output_bias=True,
    mlp_bias=True,
    is_tied=True,
    positions_offset=0,
    activation="gelu_new",
    dropouts=("embed_dropout", "resid_dropout", "attention_dropout"),
)
GPTJ = DecoderFamily(
    defaults=_sizes(50400, 4096, 28, 16, None, 2048),
    norm=Norm.LAYER,
    norms=("ln_1",),
    is_parallel=True,
    is_gated=False,
    mlp_bias=True,
    head_bias=True,
    activation="gelu_new",
    dropouts=_GPT_DROPOUTS,
)
GPT_NEOX = DecoderFamily(
    defaults=_sizes(50432, 6144, 44, 64, 24576, 2048),
    norm=Norm.LAYER,
    is_parallel=True,
    is_gated=False,
    is_fused=True,
    keeps_fused_projection=True,
    qkv_bias=("attention_bias", True),
    output_bias=("attention_bias", True),
    mlp_bias=True,
    activation="gelu",
    dropouts=("hidden_dropout", "hidden_dropout", "attention_dropout"),
    upcasts_softmax=False,
)
GPT2 = DecoderFamily(
    defaults=_sizes(50257, 768, 12, 12, None, 1024),
    norm=Norm.LAYER,
    norms=_LAYER_NORMS,
    is_gated=False,
    is_fused=True,
    qkv_bias=True,
    output_bias=True,
    mlp_bias=True,
    is_tied=True,
    positions_offset=0,
    activation="gelu_new",
    dropouts=_GPT_DROPOUTS,
    default_dropout=0.1,
    upcasts_softmax=False,
)
GPT_BIGCODE = replace(
    GPT2,
    defaults=_sizes(50257, 768, 12, 12, None, 1024, 1),
    activation="gelu_pytorch_tanh",
    upcasts_softmax=True,
)
OPT = DecoderFamily(
    defaults=_sizes(50272, 768, 12, 12, 3072, 2048),
    norm=Norm.LAYER,
    norms=("self_attn_layer_norm", "final_layer_norm"),
    is_gated=False,
    qkv_bias=("enable_bias", True),
    output_bias=("enable_bias", True),
    mlp_bias=("enable_bias", True),
    is_tied=True,
    positions_offset=2,
    activation="relu",
    dropouts=("", "dropout", "attention_dropout"),
    default_dropout=0.1,
)
BLOOM = DecoderFamily(
    defaults=_sizes(250880, 64, 2, 8, None, 2048),
    norm=Norm.LAYER,
    has_embedding_norm=True,
    is_gated=False,
    is_fused=True,
    qkv_bias=True,
    output_bias=True,
    mlp_bias=True,
    is_tied=True,
    activation="gelu",
    dropouts=("", "hidden_dropout", "attention_dropout"),
)
MPT = DecoderFamily(
    defaults=_sizes(50368, 2048, 24, 16, None, 2048),
    norm=Norm.LAYER_NO_BIAS,
    norms=("norm_1", "norm_2"),
    is_gated=False,
    is_fused=True,
    is_tied=True,
    activation="gelu",
    dropouts=("emb_pdrop", "resid_pdrop", ""),
)
COHERE = DecoderFamily(
    defaults=_sizes(256000, 8192, 40, 64, 22528, 8192),
    norm=Norm.LAYER_SPELLED_OUT,
    norms=("input_layernorm",),
    is_parallel=True,
    qkv_bias=_ATTENTION_BIAS,
    output_bias=_ATTENTION_BIAS,
    query_key_norm="all",
    query_key_norm_flag="use_qk_norm",
    is_tied=True,
)

DENSE: Mapping[str, DecoderFamily] = {
    "arcee": DecoderFamily(
        defaults=_sizes(32000, 2560, 32, 32, 18432, 4096),
        is_gated=False,
        qkv_bias=_ATTENTION_BIAS,
        output_bias=_ATTENTION_BIAS,
        mlp_bias=_MLP_BIAS,
        activation="relu2",
    ),
    "bloom": BLOOM,
    "cohere": COHERE,
    "cohere2": DecoderFamily(
        defaults=_sizes(256000, 8192, 40, 64, 22528, 8192),
        norm=Norm.LAYER_SPELLED_OUT,
        norms=("input_layernorm",),
        is_parallel=True,
        qkv_bias=_ATTENTION_BIAS,
        output_bias=_ATTENTION_BIAS,
        is_tied=True,
        default_window=4096,
        sliding_period=4,
    ),
    "exaone4": DecoderFamily(
        defaults=_sizes(102400, 4096, 32, 32, 16384, 2048, 32),
        norms=("post_attention_layernorm", POST_NORM),
        query_key_norm="head",
        default_window=4096,
        sliding_period=4,
    ),
    "gemma": GEMMA,
    "gemma2": GEMMA2,
    "gemma3_text": GEMMA3,
    "gpt2": GPT2,
    "gpt_bigcode": GPT_BIGCODE,
    "gpt_neo": GPT_NEO,
    "gpt_neox": GPT_NEOX,
    "gptj": GPTJ,
    "granite": LLAMA,
    "helium": DecoderFamily(
        defaults=_sizes(48000, 2560, 24, 20, 7040, 4096, 20, 128),
        norm=Norm.RMS_FP32,
        qkv_bias=_ATTENTION_BIAS,
        mlp_bias=_MLP_BIAS,
    ),
    "llama": LLAMA,
    "mistral": MISTRAL,
    "mpt": MPT,
    "nemotron": DecoderFamily(
        defaults=_sizes(256000, 6144, 32, 48, 24576, 4096),
        norm=Norm.LAYER,
        is_gated=False,
        qkv_bias=_ATTENTION_BIAS,
        output_bias=_ATTENTION_BIAS,
        mlp_bias=_MLP_BIAS,
        activation="relu2",
    ),
    "olmo": OLMO,
    "olmo2": OLMO2,
    "olmo3": OLMO2,
    "opt": OPT,
    "phi": PHI,
    "phi3": PHI3,
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "seed_oss": DecoderFamily(
        defaults=_sizes(155136, 4096, 64, 80, 27648, 524288, 8, 128),
        qkv_bias=("attention_bias", True),
        output_bias=("attention_out_bias", False),
        mlp_bias=_MLP_BIAS,
        dropouts=("", "residual_dropout", "attention_dropout"),
        default_dropout=0.1,
    ),
    "smollm3": SMOLLM3,
    "starcoder2": STARCODER2,
}
"""By model_type. Families that need more than a record have a reader of their own."""

READERS = {model_type: reader(family) for model_type, family in DENSE.items()}
