"""What a GPU keeps up through a training run: of its peak, of its memory, under its power limit."""

from planner.catalog.records import power_exponent
from planner.core.term import Amount
from planner.domain.job import Job


def blend(job: Job, arithmetic: Amount, moved_bytes: Amount) -> Amount:
    """Return the seconds of a matmul between its arithmetic and its traffic, by the GPU's curve."""
    curve = job.cluster.gpu.gemm
    memory = moved_bytes / (curve.hbm_fraction * job.cluster.gpu.hbm_bytes_per_second)
    return (arithmetic**curve.sharpness + memory**curve.sharpness) ** (1 / curve.sharpness)


def sustained_peak(job: Job, dtype: str) -> float:
    """Return the FLOPs per second that large matmuls keep up through a training run."""
    gpu, ran = job.cluster.gpu, ran_in(job, dtype)
    fraction = gpu.gemm.of_peak(ran) * job.framework.matmul.sustained_fraction
    return fraction * power_share(job) * gpu.peak_flops[ran]


def ran_in(job: Job, dtype: str) -> str:
    """Return the dtype that the card computes in: fp32 for one that it has no units for."""
    return dtype if dtype in job.cluster.gpu.peak_flops else "fp32"


def power_share(job: Job) -> float:
    """Return what the card's power limit leaves of the clocks that matmuls and attention run at.

        share = (watts / full_watts)^exponent, at most 1

    Notation: watts the limit that the card runs at, full_watts what its silicon draws without one.
    Source: `data/calibration/power.toml`; the GPU's record.
    Leaves out: memory clocks, which a limit does not touch.
    """
    gpu = job.cluster.gpu
    full = gpu.full_watts or gpu.tdp_watts
    watts = gpu.limit_watts or gpu.tdp_watts
    if not full or watts >= full:
        return 1.0
    return float((watts / full) ** power_exponent())


def elementwise_bandwidth(job: Job) -> float:
    """Return the bytes per second that elementwise kernels reach."""
    fraction = job.framework.memory_bound.hbm_fraction / kernel_factor(job)
    return job.cluster.gpu.hbm_bytes_per_second * fraction


def counted_bandwidth(job: Job) -> float:
    """Return the bytes per second that kernels reach on average whose traffic is counted one by one."""
    fraction = job.framework.memory_bound.counted_fraction / kernel_factor(job)
    return job.cluster.gpu.hbm_bytes_per_second * fraction


def kernel_factor(job: Job) -> float:
    """Return how much longer a job's kernels take on the user's own cards than the curves say."""
    gpu = job.cluster.gpu
    return gpu.kernel_factor * (gpu.adapters_factor if job.recipe.lora else 1.0)
