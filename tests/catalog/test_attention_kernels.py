import pytest

from planner.catalog import records
from planner.catalog.attention import attention_curve, attention_kernels


@pytest.mark.parametrize("kernel", attention_kernels())
@pytest.mark.parametrize("capability", ["", "7.0", "8.0", "8.6", "9.0", "10.0", "12.0"])
def test_every_kernel_has_shares_on_every_gpu(kernel: str, capability: str) -> None:
    curve = attention_curve(kernel, capability)
    assert 0 < curve.backward < curve.forward < 1
    assert curve.source


def test_a_gpu_without_a_curve_takes_the_nearest_older_one_or_the_default() -> None:
    assert attention_curve("flash-2", "8.9") == attention_curve("flash-2", "8.0")
    assert attention_curve("flash-2", "10.3") == attention_curve("flash-2", "10.0")
    assert attention_curve("flash-2", "7.0").source.startswith("assumed")
    assert attention_curve("flash-2", "").source.startswith("assumed")


def test_newer_cards_leave_old_kernels_behind() -> None:
    shares = [
        attention_curve("flash-2", capability).forward for capability in ("8.0", "9.0", "10.0")
    ]
    assert shares == sorted(shares, reverse=True)
    assert attention_curve("cudnn", "10.0").forward > 2 * attention_curve("flash-2", "10.0").forward


def test_published_kernels_are_within_a_tenth() -> None:
    # FlashAttention-2 on H100 SXM5, forward, no mask (FlashAttention-3, figure 5; pull request 2688).
    curve = attention_curve("flash-2", "9.0")
    for head_dim, num_keys, tflops in ((128, 2048, 362), (128, 16384, 370), (64, 2048, 308)):
        share = curve.forward * curve.ramp(head_dim, num_keys, is_causal=False)
        assert share * 989 == pytest.approx(tflops, rel=0.1)


def test_masks_keep_short_sequences_from_filling_a_kernel() -> None:
    curve = attention_curve("flash-2", "8.0")
    assert curve.ramp(128, 512, is_causal=True) < curve.ramp(128, 512, is_causal=False)
    assert curve.ramp(64, 4096, is_causal=True) < curve.ramp(128, 4096, is_causal=True) < 1


def test_frameworks_name_kernels_that_have_a_curve() -> None:
    for name in records.framework_names():
        attention = records.framework(name).attention
        assert {attention.kernel, attention.flash_kernel} <= set(attention_kernels())


def test_flash_attention_on_hopper_is_the_third_version() -> None:
    curve = attention_curve("flash", "9.0")
    assert curve.is_alone
    # tritonbench pull request 1267: 4 x 48 heads of 128, 8,192 tokens, causal, on H100.
    share = curve.ramp(128, 8192, is_causal=True)
    assert curve.forward * share * 989 == pytest.approx(685, rel=0.02)
    assert curve.backward * share * 989 == pytest.approx(539, rel=0.02)


@pytest.mark.parametrize(
    ("mask", "forward", "backward"), [("causal", 1418.1, 1208.6), ("full", 1534.8, 1359.8)]
)
def test_flash_attention_4_reaches_what_was_measured_on_a_b200(
    mask: str, forward: float, backward: float
) -> None:
    """Heads of 128 channels over 8,192 keys: 128 / 158 * 8192 / 8592 = 0.77 of 0.83, of 2,250 TFLOPS: 1,443.

    Dao-AILab/flash-attention pull request 2280, [2CTA].
    """
    curve = attention_curve("flash", "10.0")
    ramp = curve.ramp(128, 8192, is_causal=mask == "causal")
    assert 2250 * ramp * curve.forward == pytest.approx(forward, rel=0.05)
    assert 2250 * ramp * curve.backward == pytest.approx(backward, rel=0.05)
    assert attention_curve("flash", "10.3") == curve
