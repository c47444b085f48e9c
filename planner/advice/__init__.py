"""What an expert would say: a job in, a Plan with its reasons out."""
