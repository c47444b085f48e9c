"""What a machine was measured to do -> machine.json: its runs, its logs, its kernels."""
