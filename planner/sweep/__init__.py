"""A file of axes and lists in, a line of figures for each of its requests out, on many processes."""
