"""Of this axolotl's configuration asks only whether it is there."""
