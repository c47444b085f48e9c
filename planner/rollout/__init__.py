"""How long does a model take to write its own answers, and what does that hold: a job and an engine in, seconds and bytes out."""
