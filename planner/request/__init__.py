"""What was asked: a JSON object in, a Job and a wished strategy out."""
