"""On a CPU DeepSpeed first compiles collectives of its own, for minutes: leave them to gloo.

Python imports this module at its start when the folder is in PYTHONPATH. ACCELERATE_ENGINE names what
Accelerate would not start on CPUs: deepspeed or fsdp.
"""

import os

if "LOCAL_RANK" in os.environ:
    import deepspeed.ops

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    if "ACCELERATE_ENGINE" in os.environ:
        from accelerate_on_gloo import join

        join(os.environ["ACCELERATE_ENGINE"])
