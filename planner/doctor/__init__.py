"""Why a run is slow, fails or is wrong: from its timings, its script, its messages. Nothing is executed."""
