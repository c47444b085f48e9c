"""StableLM: llama with LayerNorms, and in its largest member one of them for attention and MLP."""

from dataclasses import replace

from planner.core.errors import UnsupportedError
from planner.domain.model import Model
from planner.models.architectures.config import Config
from planner.models.architectures.decoder import read_as
from planner.models.architectures.decoder_family import DecoderFamily
from planner.models.architectures.family import family_of


def read(name: str, config: Config) -> Model:
    """Return the Model of a stablelm config.json.

    Raises:
        UnsupportedError: queries and keys have a norm of each head's own, whose memory is not known.
    """
    if config.flag("qk_layernorm", default=False):
        raise UnsupportedError("stablelm with norms of each head is not known yet", field="model")
    is_parallel = config.flag("use_parallel_residual", default=False)
    family = family_of(DecoderFamily, config)
    norms = ("input_layernorm",) if is_parallel else family.norms
    return read_as(replace(family, norms=norms, is_parallel=is_parallel), name, config)
