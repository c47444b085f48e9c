"""Plan how to train a model on several GPUs: strategy, memory, step time, launch files."""
