"""What a model is made of: a Hub id, path or config.json in, a Model with exact counts out."""
