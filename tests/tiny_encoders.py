"""Small encoders and encoder-decoders of text and sound."""

from typing import Any

BERT_LIKE = {
    "vocab_size": 100,
    "hidden_size": 16,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 34,
}


NARROW = BERT_LIKE | {"embedding_size": 8}


DISTILBERT = {
    "model_type": "distilbert",
    "vocab_size": 100,
    "dim": 16,
    "hidden_dim": 40,
    "n_layers": 3,
    "n_heads": 4,
    "max_position_embeddings": 32,
}


ALBERT = NARROW | {"model_type": "albert"}


ELECTRA = NARROW | {"model_type": "electra"}


DEBERTA = BERT_LIKE | {"model_type": "deberta-v2"}


RELATIVE = DEBERTA | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}


MODERNBERT = BERT_LIKE | {"model_type": "modernbert", "num_hidden_layers": 5, "pad_token_id": 0}


T5 = {
    "model_type": "t5",
    "vocab_size": 100,
    "d_model": 16,
    "d_kv": 8,
    "d_ff": 40,
    "num_layers": 3,
    "num_heads": 4,
}


BART = {
    "model_type": "bart",
    "vocab_size": 100,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 48,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "max_position_embeddings": 32,
}


WHISPER = {key: value for key, value in BART.items() if key != "max_position_embeddings"} | {
    "model_type": "whisper",
    "pad_token_id": 0,
    "num_mel_bins": 8,
    "max_source_positions": 20,
    "max_target_positions": 12,
}


GATED = {"feed_forward_proj": "gated-gelu"}


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "roberta": ("RobertaForMaskedLM", BERT_LIKE | {"model_type": "roberta"}),
    "roberta alone": ("RobertaModel", BERT_LIKE | {"model_type": "roberta"}),
    "roberta of one token type": (
        "RobertaForMaskedLM",
        BERT_LIKE | {"model_type": "roberta", "type_vocab_size": 1},
    ),
    "roberta untied": (
        "RobertaForMaskedLM",
        BERT_LIKE | {"model_type": "roberta", "tie_word_embeddings": False},
    ),
    "xlm-roberta": ("XLMRobertaForMaskedLM", BERT_LIKE | {"model_type": "xlm-roberta"}),
    "camembert": ("CamembertForMaskedLM", BERT_LIKE | {"model_type": "camembert"}),
    "mpnet": ("MPNetForMaskedLM", BERT_LIKE | {"model_type": "mpnet"}),
    "mpnet alone": ("MPNetModel", BERT_LIKE | {"model_type": "mpnet"}),
    "distilbert": ("DistilBertForMaskedLM", DISTILBERT),
    "distilbert alone": ("DistilBertModel", DISTILBERT),
    "distilbert untied": ("DistilBertForMaskedLM", DISTILBERT | {"tie_word_embeddings": False}),
    "electra": ("ElectraForMaskedLM", ELECTRA),
    "electra of one width": ("ElectraForMaskedLM", ELECTRA | {"embedding_size": 16}),
    "electra's discriminator": ("ElectraForPreTraining", ELECTRA),
    "electra alone": ("ElectraModel", ELECTRA),
    "electra untied": ("ElectraForMaskedLM", ELECTRA | {"tie_word_embeddings": False}),
    "albert": ("AlbertForMaskedLM", ALBERT),
    "albert alone": ("AlbertModel", ALBERT),
    "albert in groups": ("AlbertForMaskedLM", ALBERT | {"num_hidden_groups": 2}),
    "albert that shares nothing": ("AlbertForMaskedLM", ALBERT | {"num_hidden_groups": 3}),
    "albert in inner groups": ("AlbertForMaskedLM", ALBERT | {"inner_group_num": 2}),
    "albert untied": ("AlbertForMaskedLM", ALBERT | {"tie_word_embeddings": False}),
    "deberta": ("DebertaV2Model", DEBERTA),
    "deberta with a head": ("DebertaV2ForMaskedLM", DEBERTA),
    "deberta untied": ("DebertaV2ForMaskedLM", DEBERTA | {"tie_word_embeddings": False}),
    "deberta with the newer head": ("DebertaV2ForMaskedLM", DEBERTA | {"legacy": False}),
    "deberta with relative positions": ("DebertaV2Model", RELATIVE),
    "deberta v3": (
        "DebertaV2Model",
        RELATIVE
        | {"position_buckets": 8, "share_att_key": True, "norm_rel_ebd": "layer_norm"}
        | {"position_biased_input": False, "type_vocab_size": 2, "pos_att_type": "p2c|c2p"},
    ),
    "deberta xlarge": (
        "DebertaV2Model",
        RELATIVE | {"conv_kernel_size": 3, "conv_act": "gelu", "embedding_size": 8},
    ),
    "modernbert": ("ModernBertForMaskedLM", MODERNBERT),
    "modernbert alone": ("ModernBertModel", MODERNBERT),
    "modernbert with biases": (
        "ModernBertForMaskedLM",
        MODERNBERT
        | {"norm_bias": True, "attention_bias": True, "mlp_bias": True}
        | {"classifier_bias": True, "decoder_bias": False, "tie_word_embeddings": False},
    ),
    "bert's classes": ("BertForSequenceClassification", BERT_LIKE | {"model_type": "bert"}),
    "roberta's classes": (
        "RobertaForSequenceClassification",
        BERT_LIKE | {"model_type": "roberta", "num_labels": 5},
    ),
    "xlm-roberta's classes": (
        "XLMRobertaForSequenceClassification",
        BERT_LIKE | {"model_type": "xlm-roberta", "id2label": {"0": "a", "1": "b", "2": "c"}},
    ),
    "camembert's classes": (
        "CamembertForSequenceClassification",
        BERT_LIKE | {"model_type": "camembert"},
    ),
    "mpnet's classes": ("MPNetForSequenceClassification", BERT_LIKE | {"model_type": "mpnet"}),
    "distilbert's classes": ("DistilBertForSequenceClassification", DISTILBERT),
    "electra's classes": ("ElectraForSequenceClassification", ELECTRA),
    "albert's classes": ("AlbertForSequenceClassification", ALBERT),
    "deberta's classes": ("DebertaV2ForSequenceClassification", RELATIVE),
    "modernbert's classes": (
        "ModernBertForSequenceClassification",
        MODERNBERT | {"classifier_bias": True, "norm_bias": True},
    ),
    "modernbert's classes without biases": ("ModernBertForSequenceClassification", MODERNBERT),
    "t5": ("T5ForConditionalGeneration", T5),
    "t5 alone": ("T5Model", T5),
    "t5's encoder": ("T5EncoderModel", T5),
    "t5 of two depths": ("T5ForConditionalGeneration", T5 | {"num_decoder_layers": 2}),
    "t5 gated": ("T5ForConditionalGeneration", T5 | GATED),
    "mt5": ("MT5ForConditionalGeneration", T5 | {"model_type": "mt5"}),
    "bart": ("BartForConditionalGeneration", BART),
    "bart alone": ("BartModel", BART),
    "bart untied": ("BartForConditionalGeneration", BART | {"tie_word_embeddings": False}),
    "mbart": ("MBartForConditionalGeneration", BART | {"model_type": "mbart"}),
    "pegasus": ("PegasusForConditionalGeneration", BART | {"model_type": "pegasus"}),
    "whisper": ("WhisperForConditionalGeneration", WHISPER),
    "whisper alone": ("WhisperModel", WHISPER),
    "whisper untied": (
        "WhisperForConditionalGeneration",
        WHISPER | {"tie_word_embeddings": False},
    ),
}


_HEADS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
_CHOICE = "ForMultipleChoice"
_BART_HEADS = ("ForSequenceClassification", "ForQuestionAnswering")
_OF_FAMILIES: tuple[tuple[str, dict[str, Any], tuple[str, ...]], ...] = (
    ("Bert", BERT_LIKE | {"model_type": "bert"}, (*_HEADS, _CHOICE, "ForNextSentencePrediction")),
    ("Roberta", BERT_LIKE | {"model_type": "roberta"}, (*_HEADS, _CHOICE)),
    ("XLMRoberta", BERT_LIKE | {"model_type": "xlm-roberta"}, (*_HEADS, _CHOICE)),
    ("Camembert", BERT_LIKE | {"model_type": "camembert"}, (*_HEADS, _CHOICE)),
    ("MPNet", BERT_LIKE | {"model_type": "mpnet"}, (*_HEADS, _CHOICE)),
    ("DistilBert", DISTILBERT, (*_HEADS, _CHOICE)),
    ("Electra", ELECTRA, (*_HEADS, _CHOICE)),
    ("Albert", ALBERT, (*_HEADS, _CHOICE)),
    ("DebertaV2", DEBERTA, (*_HEADS, _CHOICE)),
    ("ModernBert", MODERNBERT, (*_HEADS, _CHOICE)),
    ("ModernBert", MODERNBERT | {"classifier_bias": True, "norm_bias": True}, (*_HEADS, _CHOICE)),
    ("Bart", BART, _BART_HEADS),
    ("MBart", BART | {"model_type": "mbart"}, _BART_HEADS),
    ("T5", T5, _HEADS),
    ("MT5", T5 | {"model_type": "mt5"}, _HEADS),
)
HEADS: tuple[tuple[str, dict[str, Any]], ...] = tuple(
    (f"{family}{end}", config | labels)
    for family, config, ends in _OF_FAMILIES
    for end in ends
    for labels in ({}, {"num_labels": 5})
    if not labels or end in _HEADS[:2]
)
"""Heads of few logits, with transformers' number of labels and with another."""
