"""The loss by slices: value and gradients against torch's own in float64."""

import pytest
import torch

from geomprobe.lab import objective
from geomprobe.lab.objective import ROWS, head_loss

VOCABULARY, HIDDEN = 37, 12


def case(n, spread=1.0, seed=0):
    """Hidden states, a head and targets; the greatest logits are about as large as the spread."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(n, HIDDEN, generator=generator)
    weight = torch.randn(VOCABULARY, HIDDEN, generator=generator)
    weight *= spread / float((hidden @ weight.T).abs().max())
    return hidden, weight, torch.randint(0, VOCABULARY, (n,), generator=generator)


def by_torch(hidden, weight, target, slope=1.0):
    """Loss and both gradients, float64."""
    hidden, weight = hidden.double().requires_grad_(), weight.double().requires_grad_()
    loss = torch.nn.functional.cross_entropy(hidden @ weight.T, target)
    return [loss.detach(), *torch.autograd.grad(slope * loss, (hidden, weight))]


def by_slices(hidden, weight, target, slope=1.0):
    hidden, weight = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
    loss = head_loss(hidden, weight, target)
    return [loss.detach(), *torch.autograd.grad(slope * loss, (hidden, weight))]


def check(got, due):
    for name, x, y in zip(("loss", "d_hidden", "d_weight"), got, due, strict=True):
        assert bool(torch.isfinite(x).all()), name
        assert float((x.double() - y).abs().max()) <= 1e-5 * float(y.abs().max()), name


@pytest.mark.parametrize("n", [1, 5, ROWS - 1, ROWS, ROWS + 1, 2 * ROWS + 37])
@pytest.mark.parametrize("spread", [1.0, 80.0])
def test_loss_and_gradients(n, spread):
    given = case(n, spread)
    check(by_slices(*given), by_torch(*given))


def test_a_slope_from_behind_reaches_both_gradients():
    given = case(ROWS + 9)
    check(by_slices(*given, slope=-3.5), by_torch(*given, slope=-3.5))


def test_half_precision_rounds_products_and_not_the_gradient_of_the_head():
    """As in a training in bfloat16: weights are float32, and so is what is added to them."""
    hidden, weight, target = case(ROWS + 9)
    hidden, weight = hidden.bfloat16().requires_grad_(), weight.requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = head_loss(hidden, weight, target)
    d_hidden, d_weight = torch.autograd.grad(loss, (hidden, weight))
    assert (loss.dtype, d_hidden.dtype, d_weight.dtype) == (torch.float32, torch.bfloat16, torch.float32)
    due = by_torch(hidden.detach(), weight.detach(), target)
    assert float(loss.detach()) == pytest.approx(float(due[0]), rel=1e-2)
    assert float((d_weight.double() - due[2]).abs().max()) <= 2e-2 * float(due[2].abs().max())
    assert not torch.equal(d_weight, d_weight.bfloat16().float())


def test_logits_beyond_what_exp_holds():
    """exp(±300) is no number in float32; a certain answer costs nothing, and a certain mistake the difference."""
    weight = torch.tensor([[300.0], [-300.0]])
    loss, *gradients = by_slices(torch.ones(2, 1), weight, torch.tensor([0, 1]))
    assert float(loss) == pytest.approx(300)
    assert gradients[0].flatten().tolist() == pytest.approx([0, 300])
    assert gradients[1].flatten().tolist() == pytest.approx([0.5, -0.5])


def test_the_slices_do_not_show(monkeypatch):
    given = case(2 * ROWS + 37)
    whole = by_slices(*given)
    monkeypatch.setattr(objective, "ROWS", 7)
    check(by_slices(*given), [x.double() for x in whole])


def test_without_gradients_the_value_is_the_same():
    hidden, weight, target = case(ROWS + 5)
    with torch.no_grad():
        plain = head_loss(hidden, torch.nn.Parameter(weight), target)
    assert not plain.requires_grad
    assert torch.equal(plain, by_slices(hidden, weight, target)[0])


# ------------------------------------------------------------------ planted defects
def not_divided(right, ctx, slope):
    d_hidden, d_weight, _ = right(ctx, slope)
    return d_hidden * len(d_hidden), d_weight * len(d_hidden), None


def no_slope(right, ctx, slope):
    return right(ctx, torch.ones_like(slope))


def last_slice_lost(right, ctx, slope):
    d_hidden, d_weight, _ = right(ctx, slope)
    return d_hidden.index_fill(0, torch.arange(ROWS, len(d_hidden)), 0), d_weight, None


def head_lost(right, ctx, slope):
    d_hidden, d_weight, _ = right(ctx, slope)
    return d_hidden, torch.zeros_like(d_weight), None


@pytest.mark.parametrize(
    ("defect", "shows"),
    [(not_divided, "d_hidden"), (no_slope, "d_hidden"), (last_slice_lost, "d_hidden"), (head_lost, "d_weight")],
)
def test_a_wrong_gradient_is_caught(defect, shows, monkeypatch):
    right = objective._Head.backward
    monkeypatch.setattr(objective._Head, "backward", staticmethod(lambda ctx, slope: defect(right, ctx, slope)))
    given = case(ROWS + 37)
    with pytest.raises(AssertionError, match=shows):
        check(by_slices(*given, slope=2.0), by_torch(*given, slope=2.0))
