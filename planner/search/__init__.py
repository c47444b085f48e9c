"""Which layouts are legal, and what is each worth: a job in, estimates of every layout out."""
