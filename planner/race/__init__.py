"""Plans whose order is in doubt -> the one that was measured to be the fastest here, and what each run showed."""
