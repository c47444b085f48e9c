"""The training that every target must repeat: one process, one batch, plain PyTorch.

Written from the documentation of the generated script, without its code.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from launched import (
    BART,
    BERT,
    BETA2,
    CLASSES,
    CLASSIFIER,
    DEEP_GPT2,
    DEEP_LLAMA,
    GPT2,
    LLAMA,
    STEPS,
    T5,
    WEIGHT_DECAY,
    Run,
)
from texts import END, FIRST_WORD, MASK, class_of
from torch import Tensor

SEQUENCE_LENGTH = 16
GLOBAL_BATCH_SIZE = 16
PEAK_LEARNING_RATE = 1e-3
TOLERANCE = 1e-5
torch.set_num_threads(1)  # several would only wait for each other on models this small
SHAPES: Mapping[str, Mapping[str, Any]] = {
    "gpt2": GPT2,
    "llama": LLAMA,
    "bert": BERT,
    "classifier": CLASSIFIER,
    "t5": T5,
    "bart": BART,
    "deep-gpt2": DEEP_GPT2,
    "deep-llama": DEEP_LLAMA,
}
NORMS = ("norm", "ln_", "layer_scale", "downsampling_layer.0")
"""What models call the scales of norms, and of whole layers."""
AUTO = {
    "ForMaskedLM": transformers.AutoModelForMaskedLM,
    "ForSequenceClassification": transformers.AutoModelForSequenceClassification,
    "ForTokenClassification": transformers.AutoModelForTokenClassification,
    "ForConditionalGeneration": transformers.AutoModelForSeq2SeqLM,
}


@dataclass
class Reference:
    """What a run without parallelism gives."""

    initial: dict[str, Tensor]
    weights: dict[str, Tensor]
    losses: list[float]


def causal_sample(index: int, vocabulary: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(index)
    tokens = torch.randint(vocabulary, (SEQUENCE_LENGTH,), generator=generator)
    return tokens, tokens


def masked_sample(index: int, vocabulary: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(index)
    tokens = torch.randint(vocabulary, (SEQUENCE_LENGTH,), generator=generator)
    return hide(tokens, generator, vocabulary, vocabulary - 1)


def classified_sample(index: int, vocabulary: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(index)
    tokens = torch.randint(vocabulary, (SEQUENCE_LENGTH,), generator=generator)
    return tokens, torch.randint(CLASSES, (), generator=generator)


def tagged_sample(index: int, vocabulary: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(index)
    tokens = torch.randint(vocabulary, (SEQUENCE_LENGTH,), generator=generator)
    return tokens, torch.randint(CLASSES, (SEQUENCE_LENGTH,), generator=generator)


def paired_sample(index: int, vocabulary: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(index)
    tokens = torch.randint(vocabulary, (2, SEQUENCE_LENGTH), generator=generator)
    return tokens[0], tokens[1]


def hide(
    tokens: Tensor, generator: torch.Generator, vocabulary: int, mask: int
) -> tuple[Tensor, Tensor]:
    """Return the tokens with 15 % of them hidden, at least one, and those as labels."""
    count = max(1, round(0.15 * len(tokens)))
    positions = torch.randperm(len(tokens), generator=generator)[:count].tolist()
    fates = torch.rand(count, generator=generator).tolist()
    drawn = torch.randint(vocabulary, (count,), generator=generator).tolist()
    inputs, labels = tokens.clone(), torch.full_like(tokens, -100)
    for position, fate, token in zip(positions, fates, drawn, strict=True):
        labels[position] = tokens[position]
        if fate < 0.8:
            inputs[position] = mask
        elif fate < 0.9:
            inputs[position] = token
    return inputs, labels


def text_sample(index: int, texts: list[list[int]], model: Any) -> tuple[Tensor, Tensor]:
    """Return a text's tokens and labels, at most SEQUENCE_LENGTH of them and no padding."""
    epoch, position = divmod(index, len(texts))
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(epoch))
    text = texts[int(order[position])]
    words = [FIRST_WORD + word for word in text]
    if head(model) == "paired":  # the first and the last word complete the text
        return torch.tensor(words[:SEQUENCE_LENGTH]), torch.tensor([words[0], words[-1]])
    if head(model) == "causal":
        tokens = torch.tensor([*words, END][:SEQUENCE_LENGTH])
        return tokens, tokens
    tokens = torch.tensor(words[:SEQUENCE_LENGTH])
    if head(model) == "tagger":
        return tokens, tokens % CLASSES
    if head(model) == "classifier":
        return tokens, torch.tensor(class_of(text, model.config.num_labels))
    generator = torch.Generator().manual_seed(index)
    return hide(tokens, generator, model.config.vocab_size, MASK)


SAMPLES = {
    "causal": causal_sample,
    "masked": masked_sample,
    "classifier": classified_sample,
    "tagger": tagged_sample,
    "paired": paired_sample,
}


def learning_rate(step: int, steps: int = STEPS) -> float:
    """One step of warm-up, then a cosine from the peak to a tenth of it."""
    if step == 0:
        return PEAK_LEARNING_RATE
    cosine = math.cos(math.pi * (step - 1) / (steps - 1))
    return PEAK_LEARNING_RATE * (0.1 + 0.9 * (1 + cosine) / 2)


@cache
def expected(architecture: str) -> Reference:
    """Train one of the shapes, once per session."""
    return train(SHAPES[architecture])


def distance(some: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> float:
    """Return the largest difference between two sets of weights, but for one weight in ten thousand.

    Adam divides a gradient by its own size, so rounding of one near zero moves its weight by a share of the
    learning rate: on some processors one of a whole model is 1.2e-5 off, where no other is 5e-6.
    """
    apart = torch.cat([(some[name] - others[name]).abs().flatten() for name in some])
    return apart.kthvalue(len(apart) - len(apart) // 10_000).values.item()


def mean_distance(some: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> float:
    return sum((some[name] - others[name]).abs().mean().item() for name in some) / len(some)


def assert_parity(run: Run, reference: Reference, world_size: int = 2) -> None:
    """Compare a finished run with one process: every step's loss and all weights, which moved."""
    assert {record["world_size"] for record in run.log} == {world_size}
    assert [record["step"] for record in run.log] == [1, 2, 3]
    assert run.losses == pytest.approx(reference.losses, abs=TOLERANCE, rel=0)
    assert run.weights.keys() == reference.weights.keys()
    assert distance(run.weights, reference.weights) <= TOLERANCE
    assert distance(reference.initial, reference.weights) > 100 * TOLERANCE


def build(model_config: Mapping[str, Any], attention: str = "sdpa") -> Any:
    """Return the model that every script starts from, without dropout."""
    config = transformers.AutoConfig.for_model(**model_config)
    for name in ("resid_pdrop", "embd_pdrop", "attn_pdrop"):
        setattr(config, name, 0.0)
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    config.dropout = config.dropout_rate = 0.0
    torch.manual_seed(0)
    (named,) = model_config.get("architectures") or ["GPT2LMHeadModel"]
    auto: Any = next((auto for end, auto in AUTO.items() if named.endswith(end)), None)
    auto = auto or transformers.AutoModelForCausalLM
    return auto.from_config(config, attn_implementation=attention).train()


def build_optimizer(model: Any, **options: Any) -> torch.optim.AdamW:
    """Return AdamW: biases, and whatever is named after a norm or a scale, do not decay."""
    return torch.optim.AdamW(
        decaying(model), betas=(0.9, BETA2), weight_decay=WEIGHT_DECAY, **options
    )


def decaying(model: Any) -> list[dict[str, Any]]:
    """Return the parameters that decay, and those that do not."""
    apart: dict[bool, list[Tensor]] = {False: [], True: []}
    for name, parameter in model.named_parameters():
        is_norm = any(word in name.lower() for word in NORMS)
        apart[is_norm or name.endswith("bias")].append(parameter)
    return [{"params": apart[False]}, {"params": apart[True], "weight_decay": 0.0}]


def head(model: Any) -> str:
    """Return what the model is trained for."""
    heads = {
        "ForMaskedLM": "masked",
        "ForSequenceClassification": "classifier",
        "ForTokenClassification": "tagger",
        "ForConditionalGeneration": "paired",
    }
    name = type(model).__name__
    return next((kind for end, kind in heads.items() if name.endswith(end)), "causal")


def take_step(model: Any, optimizer: Any, indices: range, rate: float, *, clip: float = 1.0) -> Any:
    """Train on the samples as one batch; return its loss."""
    pairs = [SAMPLES[head(model)](index, model.config.vocab_size) for index in indices]
    inputs, labels = (torch.stack(tensors) for tensors in zip(*pairs, strict=True))
    loss = model(input_ids=inputs, labels=labels).loss
    loss.backward()
    return update(model, optimizer, rate, loss, clip)


def take_text_step(
    model: Any, optimizer: Any, samples: list[tuple[Tensor, Tensor]], rate: float
) -> Any:
    """Train on texts, each by itself; return the mean loss of all tokens that were predicted."""
    first = 1 if head(model) == "causal" else 0  # nothing predicts a text's first token
    counts = [int((labels.reshape(-1)[first:] != -100).sum()) for _, labels in samples]
    total = torch.zeros(())
    for (inputs, labels), count in zip(samples, counts, strict=True):
        loss = model(input_ids=inputs[None], labels=labels[None]).loss * count / sum(counts)
        loss.backward()
        total += loss.detach()
    return update(model, optimizer, rate, total)


def update(model: Any, optimizer: Any, rate: float, loss: Tensor, clip: float = 1.0) -> Any:
    """Take a step of the optimizer with the gradients there are."""
    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def train(  # noqa: PLR0913 - each is one thing that a plan may choose
    model_config: Mapping[str, Any],
    texts: list[list[int]] | None = None,
    *,
    clip: float = 1.0,
    adapt: Callable[[Any], Any] | None = None,
    attention: str = "sdpa",
    step_with: Callable[[Any], Any] = build_optimizer,
    rate: Callable[[int], float] = learning_rate,
) -> Reference:
    """Train on synthetic tokens, or on texts that are given as numbers of words."""
    model = build(model_config, attention)
    model = adapt(model) if adapt else model
    initial = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = step_with(model)
    losses = []
    for step in range(STEPS):
        indices = range(step * GLOBAL_BATCH_SIZE, (step + 1) * GLOBAL_BATCH_SIZE)
        if texts is None:
            losses.append(take_step(model, optimizer, indices, rate(step), clip=clip))
        else:
            samples = [text_sample(index, texts, model) for index in indices]
            losses.append(take_text_step(model, optimizer, samples, rate(step)))
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    return Reference(initial, weights, losses)


def train_apart(model_config: Mapping[str, Any], *, every: int, steps: int) -> Reference:
    """Train two replicas on half of each batch, and average their parameters every few steps."""
    replicas = [build(model_config) for _ in range(2)]
    initial = {name: value.detach().clone() for name, value in replicas[0].named_parameters()}
    optimizers = [build_optimizer(replica) for replica in replicas]
    half, losses = GLOBAL_BATCH_SIZE // 2, []
    for step in range(steps):
        first, rate = step * GLOBAL_BATCH_SIZE, learning_rate(step, steps)
        halves = (range(first, first + half), range(first + half, first + 2 * half))
        pairs = zip(replicas, optimizers, halves, strict=True)
        losses.append(sum(take_step(*pair, rate) for pair in pairs) / 2)
        if (step + 1) % every == 0:
            with torch.no_grad():
                for some, other in zip(*(r.parameters() for r in replicas), strict=True):
                    mean = (some + other) / 2
                    some.copy_(mean)
                    other.copy_(mean)
    weights = {name: value.detach() for name, value in replicas[0].named_parameters()}
    return Reference(initial, weights, losses)


def train_samples(
    auto: Any,
    config: Any,
    sample: Callable[[int], dict[str, Tensor]],
    attention: str = "sdpa",
    rate: Callable[[int], float] = learning_rate,
) -> Reference:
    """Train on samples by their index, in one process; weights by the names that they have in the model."""
    torch.manual_seed(0)
    model = auto.from_config(config, attn_implementation=attention).train()
    initial = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimizer, losses = build_optimizer(model), []
    for step in range(STEPS):
        first = step * GLOBAL_BATCH_SIZE
        samples = [sample(index) for index in range(first, first + GLOBAL_BATCH_SIZE)]
        batch = {name: torch.stack([each[name] for each in samples]) for name in samples[0]}
        loss = model(**batch).loss
        loss.backward()
        losses.append(update(model, optimizer, rate(step), loss))
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    return Reference(initial, weights, losses)


def assert_loads_alike(run: Run, auto: Any, reference: Reference) -> None:
    """The weights are compared as they load: their names in the file may be older ones."""
    assert run.losses == pytest.approx(reference.losses, abs=TOLERANCE, rel=0)
    loaded = auto.from_pretrained(run.folder / "model")
    weights = {name: weight.detach() for name, weight in loaded.named_parameters()}
    assert distance(reference.weights, weights) <= TOLERANCE
    assert distance(reference.weights, reference.initial) > 100 * TOLERANCE


def weights_of(model_config: dict[str, Any], folder: Path) -> tuple[str, ...]:
    """Save the reference's initial weights; return the arguments that start from them."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(**model_config)
    auto: Any = transformers.AutoModelForCausalLM
    auto.from_config(config).save_pretrained(folder)
    return ("--init", "pretrained", "--model", str(folder))
