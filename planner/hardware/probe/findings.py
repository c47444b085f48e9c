"""What each finding of the probe means: one text for every door that explains a code."""

from collections.abc import Mapping

FINDINGS: Mapping[str, str] = {
    "PRB001": """A GPU does not answer and is left out.

Why: it has fallen off the bus or waits for a reset (Xid 79 and its kin in the kernel's log). CUDA
often fails on the other GPUs, too, until it is back.

Instead: read `dmesg | grep -i xid`, drain the node, reset the GPU or reboot.

Source: NVML's NVML_ERROR_GPU_IS_LOST and NVML_ERROR_RESET_REQUIRED; NVIDIA's list of Xid errors.
""",
    "PRB002": """A GPU is listed, but cannot be opened or has no name, and is left out.

Why: a container or a scheduler's device control withholds it from this process.

Instead: run where the job will run, or give the container all GPUs of the job.

Source: NVML's nvmlDeviceGetHandleByIndex (NVML_ERROR_NO_PERMISSION).
""",
    "PRB003": """Some questions to the driver were refused for want of permission.

Why: containers and device control allow some calls and not others. What was refused is unknown,
not absent.

Instead: probe as the user and in the container of the job, or on the bare machine.

Source: NVML's NVML_ERROR_NO_PERMISSION.
""",
    "PRB004": """A GPU is split by MIG.

Why: a process gets one instance with its share of memory and processors. Between instances there
is neither NVLink nor peer-to-peer, so training over several of them is slow at best.

Instead: switch MIG off for training (`nvidia-smi -i INDEX -mig 0`).

Source: NVIDIA Multi-Instance GPU user guide, "Application Considerations".
""",
    "PRB005": """The fabric manager has not finished: CUDA will fail until it has.

Why: on machines with NVSwitch a service brings up the NVLink fabric. Before that the GPUs and even
their links look right, and creating a CUDA context fails.

Instead: `systemctl status nvidia-fabricmanager`; its version must equal the driver's.

Source: NVML's NVML_GPU_FABRIC_STATE_*; NVIDIA Fabric Manager user guide.
""",
    "PRB006": """The fabric manager finished with an error.

Why: a switch, a link or the partition's settings are at fault; CUDA fails on that GPU.

Instead: read the fabric manager's log.

Source: NVML's nvmlGpuFabricInfoV_t, field status.
""",
    "PRB007": """NVLink runs with less than its bandwidth.

Why: the driver keeps a GPU in the fabric when some of its links are down. Collectives run at the
pace of the slowest GPU.

Instead: read `nvidia-smi nvlink -s` and have the links repaired.

Source: NVML's NVML_GPU_FABRIC_HEALTH_MASK_DEGRADED_BW.
""",
    "PRB008": """Where NVLinks end was assumed, not read.

Why: virtual machines hide the switches, and old drivers do not say what a link leads to. Active
links with a nameless end are taken as links to a switch that joins all GPUs, as NCCL does, unless
the driver denies NVLink between two GPUs.

Instead: compare with `nvidia-smi topo -m`.

Source: NVIDIA/nccl issue 1182.
""",
    "PRB009": """NVLinks lead to GPUs that this process does not see; they are ignored.

Why: a container or a scheduler hands out some of the GPUs that a board joins.

Instead: nothing, if these are the GPUs of the job; else ask for GPUs that are joined.

Source: NVML's nvmlDeviceGetNvLinkRemotePciInfo.
""",
    "PRB010": """NVML cannot be loaded; the machine was read with `nvidia-smi`.

Why: the library is not on the loader's path, as in some containers. What nvidia-smi does not print
in its tables stays unknown.

Instead: put libnvidia-ml.so.1 on the loader's path.

Source: nvidia-smi's help on `--query-gpu` and `topo -m`.
""",
    "PRB011": """CUDA_VISIBLE_DEVICES leaves some GPUs, or another order.

Why: CUDA shows a program these alone and numbers them anew. NVML ignores the variable.

Instead: unset it to plan for the whole machine.

Source: CUDA Programming Guide, on environment variables.
""",
    "PRB012": """CUDA_VISIBLE_DEVICES cannot be read; all GPUs are shown.

Why: it names a GPU that is not here, or one twice. CUDA then sees no GPU at all.

Instead: give numbers from 0 or UUIDs as `nvidia-smi -L` prints them, separated by commas.

Source: CUDA Programming Guide, on environment variables.
""",
}
"""Statement, Why, Instead and Source by code."""
