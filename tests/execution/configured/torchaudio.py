"""Of sounds, which are no part of what is read here: LLaMA-Factory imports it all the same."""
