"""The answer as JSON: a Plan or an estimate in, the contract's objects out, for every door."""
