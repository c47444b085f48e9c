"""A plan and the run that was made of it -> whether it came as planned, and else why not."""
