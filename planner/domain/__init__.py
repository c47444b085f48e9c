"""The nouns: model, cluster, framework, job and strategy, as frozen values without a rule or a file."""
