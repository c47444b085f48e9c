"""What was asked: a JSON object in, a Job and a requested strategy out."""
