"""Let torchtitan train on CPUs: Python imports this module at its start when the folder is in PYTHONPATH."""

import os

if "LOCAL_RANK" in os.environ:
    import stand_ins

    stand_ins.take_place()
