"""Plan how to train a model on several GPUs: strategy, memory, step time, launch files."""

__version__ = "0.4.0"
