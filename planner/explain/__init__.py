"""What a code, a term or a message means: every rule, finding and entry of the glossary, by name."""
