"""What a number is here: base units in, text for a person out; errors with a hint; terms with their arithmetic."""
