"""How well the planner predicts: published runs in, errors by source out."""
