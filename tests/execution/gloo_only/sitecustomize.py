"""What cannot run on CPUs as it is gets a stand-in before it starts.

Python imports this module at its start when the folder is in PYTHONPATH. DeepSpeed first compiles collectives of its
own there, for minutes: leave them to gloo. ACCELERATE_ENGINE names what Accelerate would not start on CPUs: deepspeed
or fsdp. With titan/on_cpus in PYTHONPATH too, torchtitan has its stand-ins.
"""

import importlib
import importlib.util
import os

if "LOCAL_RANK" in os.environ:
    if importlib.util.find_spec("stand_ins"):
        importlib.import_module("stand_ins").take_place()
    else:
        import deepspeed.ops

        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    if "ACCELERATE_ENGINE" in os.environ:
        from accelerate_on_gloo import join

        join(os.environ["ACCELERATE_ENGINE"])
