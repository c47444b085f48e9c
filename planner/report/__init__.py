"""The answer as text: a Plan, an estimate or a record in, lines for a terminal out."""
