"""Who holds what: a job and a strategy in, stages, shards and schedules out."""
