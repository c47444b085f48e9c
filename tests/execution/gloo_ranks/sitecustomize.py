"""Join DeepSpeed's processes on gloo before Accelerate would: without GPUs it takes each for the only one.

transformers' Trainer does the same. Python imports this module at its start when the folder is in PYTHONPATH.
"""

import os

if "LOCAL_RANK" in os.environ:
    import deepspeed.ops
    from accelerate import PartialState

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # minutes of compiling
    deepspeed.comm.init_distributed("gloo", auto_mpi_discovery=False)
    PartialState(cpu=True)
