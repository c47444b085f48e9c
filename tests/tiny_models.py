"""Small models whose parameters were counted by hand, and what their blocks keep."""

GPT2 = {
    "model_type": "gpt2",
    "vocab_size": 100,
    "n_positions": 32,
    "n_embd": 16,
    "n_layer": 3,
    "n_head": 4,
}


LLAMA = {
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 16,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
}


MISTRAL = LLAMA | {"model_type": "mistral"}


QWEN2 = LLAMA | {"model_type": "qwen2"}


BERT = {
    "model_type": "bert",
    "vocab_size": 100,
    "hidden_size": 16,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 32,
    "type_vocab_size": 2,
}
