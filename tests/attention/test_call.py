"""Reading a kernel's arguments: positions and names, masks that keep and masks that add, caps, sinks, biases."""

import pytest
import torch

from geomprobe.attention.call import read_call
from geomprobe.errors import UnsupportedModel

LOWEST = torch.finfo(torch.float32).min


class Attention(torch.nn.Module):
    is_causal = True


def call(*, kernel="sdpa", args=None, module=None, heads=4, length=6, **kwargs):
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(2, n, length, 9, generator=generator) for n in (heads, 2, 2)]
    given = (*tensors, None) if args is None else (*tensors, *args)
    return read_call(("layers.3.attn", 3), module or Attention(), kernel, given, kwargs)


def test_arguments_by_place_and_by_name_are_the_same():
    mask = torch.ones(1, 1, 6, 6, dtype=torch.bool).tril()
    placed = call(args=(mask,))
    named = call(args=(), attention_mask=mask)
    assert placed.mask is named.mask is mask
    assert torch.equal(placed.key, named.key)
    assert (placed.layer, placed.name, placed.kernel) == (3, "layers.3.attn", "sdpa")
    with pytest.raises(UnsupportedModel, match="Attention calls its attention kernel in a way"):
        call(args=(mask, 0.5))


def test_the_scale_is_the_calls_own():
    assert call().scale == pytest.approx(1 / 3)
    assert call(scaling=None).scale == pytest.approx(1 / 3)
    assert call(scaling=0.7).scale == 0.7


def test_a_missing_mask_is_causal_where_the_kernel_takes_it_so():
    assert call().is_causal
    assert call().visibility().high[0].tolist() == list(range(6))
    assert not call(is_causal=False).is_causal
    assert call(is_causal=False).visibility().count[0].tolist() == [6] * 6
    # eager adds nothing where there is no mask
    assert not call(kernel="eager").is_causal
    assert call(kernel=None).kernel == "eager"
    other = Attention()
    other.is_causal = False
    assert not call(module=other).is_causal
    assert call(module=torch.nn.Identity()).is_causal
    # one query comes last and sees every key
    assert call(length=1).visibility().count.tolist() == [[1]]


def test_a_boolean_mask_keeps_under_sdpa():
    mask = torch.ones(1, 1, 6, 8, dtype=torch.bool).tril()  # longer than the keys
    made = call(args=(mask,))
    assert made.mask_is_boolean_keep
    assert torch.equal(made.visible(), mask[..., :6])
    assert made.additive() is None


@pytest.mark.parametrize("hidden", [float("-inf"), LOWEST, -10_000.0])
def test_an_additive_mask_hides_and_shifts(hidden):
    causal = torch.ones(6, 6, dtype=torch.bool).tril()
    mask = torch.zeros(1, 1, 6, 6).masked_fill(~causal, hidden)
    made = call(args=(mask,), kernel="eager")
    assert torch.equal(made.visible()[0, 0], causal)
    assert made.additive() is None
    slope = -0.5 * torch.arange(6.0)
    made = call(args=(mask + slope,), kernel="eager")
    assert torch.equal(made.visible()[0, 0], causal)
    assert torch.equal(made.additive()[0, 0], torch.where(causal, slope, 0))


def test_mask_and_bias_add_up():
    bias = torch.randn(1, 4, 6, 6, generator=torch.Generator().manual_seed(1))
    assert torch.equal(call(position_bias=bias).additive(), bias)
    shift = torch.full((1, 1, 6, 6), 0.25)
    assert torch.allclose(call(args=(shift,), position_bias=bias).additive(), bias + 0.25)


def test_heads_that_are_masked_differently_are_refused():
    mask = torch.ones(1, 4, 6, 6, dtype=torch.bool).tril()
    assert call(args=(mask,)).visibility().count[0].tolist() == [1, 2, 3, 4, 5, 6]
    mask = mask.clone()
    mask[0, 2, 5, 0] = False
    with pytest.raises(UnsupportedModel, match=r"Layer 3 \(layers\.3\.attn\) masks its heads differently"):
        call(args=(mask,)).visibility()


def test_cap_and_sinks():
    assert call().softcap is None
    assert call(softcap=None).softcap is None
    assert call(softcap=30).softcap == 30.0
    sinks = torch.arange(4.0)
    for name in ("s_aux", "sinks"):
        assert torch.equal(call(**{name: sinks}).sinks, sinks[None, :, None])
    of_each_query = torch.randn(1, 4, 6, 1)
    assert torch.equal(call(sinks=of_each_query).sinks, of_each_query[..., 0])
    with pytest.raises(
        UnsupportedModel, match=r"learned sinks have the shape \(1, 4\); geomprobe reads one logit a head"
    ):
        call(s_aux=sinks[None])


def test_other_kernels_are_refused():
    with pytest.raises(UnsupportedModel, match="The attention kernel 'flash_attention_2' hides its mask"):
        call(kernel="flash_attention_2")
