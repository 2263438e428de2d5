"""Intervals of visible keys against masks read row by row in plain loops."""

import pytest
import torch

from geomprobe.attention.visibility import Visibility, causal, everything, from_dense, from_intervals
from geomprobe.errors import UnsupportedModel

T = 23


def pair(rule):
    """A dense mask (query, key) from a rule of t and j."""
    return torch.tensor([[rule(t, j) for j in range(T)] for t in range(T)])


MASKS = {
    "causal": pair(lambda t, j: j <= t),
    "sliding": pair(lambda t, j: t - 5 < j <= t),
    "chunked": pair(lambda t, j: j <= t and j // 6 == t // 6),
    "prefix": pair(lambda t, j: j <= t or j < 7),
    "bidirectional": pair(lambda _t, _j: True),
    "bidirectional sliding": pair(lambda t, j: abs(t - j) < 4),
}
PADDING = {"none": (0, 0), "left": (3, 0), "right": (0, 4), "both": (2, 3)}


@pytest.fixture(params=list(MASKS))
def mask(request):
    return MASKS[request.param]


def valid_of(left, right):
    valid = torch.zeros(T, dtype=torch.bool)
    valid[left : T - right] = True
    return valid


def compressed(mask, valid):
    """The mask among the valid tokens alone."""
    keep = valid.nonzero().flatten()
    return mask[keep][:, keep]


def same_as(visibility, dense):
    """Compare every answer of a visibility of one sequence with a dense (query, key) mask."""
    n = len(dense)
    rows = [row.nonzero().flatten().tolist() for row in dense]
    assert visibility.low.tolist() == [[row[0] for row in rows]]
    assert visibility.high.tolist() == [[row[-1] for row in rows]]
    assert visibility.count.tolist() == [[len(row) for row in rows]]
    assert (visibility.n_queries, visibility.n_keys) == (n, n)

    first, last = visibility.seen_by()
    for key in range(n):
        who = dense[:, key].nonzero().flatten().tolist()
        found = list(range(int(first[0, key]), int(last[0, key]) + 1))
        assert found == who

    mass = [sum(1 / len(row) for row in rows if key in row) for key in range(n)]
    assert visibility.uniform_mass()[0].tolist() == pytest.approx(mass, abs=1e-12)
    assert float(visibility.uniform_mass().sum()) == pytest.approx(n)

    for start, stop in ((0, n), (0, 1), (3, min(9, n)), (n - 1, n), (0, 7)):
        least, most = visibility.rows(start, stop)
        seen = dense[start:stop].any(0).nonzero().flatten().tolist()
        assert (least, most) == (seen[0], seen[-1] + 1)
        visible, full_from, full_to = visibility.block(start, stop)
        assert visible.shape == (1, 1, stop - start, most - least)
        assert torch.equal(visible[0, 0], dense[start:stop, least:most])
        shared = (dense[start:stop, least:most].all(0)).nonzero().flatten().tolist()
        assert list(range(full_from, full_to)) == shared


def test_a_dense_mask_is_read(mask):
    same_as(from_dense(mask[None]), mask)


@pytest.mark.parametrize("padding", list(PADDING))
def test_padding_is_cut_out(mask, padding):
    valid = valid_of(*PADDING[padding])
    visibility = from_dense(mask[None], valid[None])
    for t in valid.nonzero().flatten().tolist():
        keys = [j for j in range(T) if mask[t, j] and valid[j]]
        assert (int(visibility.low[0, t]), int(visibility.high[0, t])) == (keys[0], keys[-1])
    same_as(visibility.select(0, valid.nonzero().flatten()), compressed(mask, valid))


def test_a_batch_of_one_mask_with_padding_of_many(mask):
    valid = torch.stack([valid_of(*padding) for padding in PADDING.values()])
    visibility = from_dense(mask[None], valid)
    assert visibility.low.shape == (len(PADDING), T)
    for item, row in enumerate(valid):
        same_as(visibility.select(item, row.nonzero().flatten()), compressed(mask, row))


def test_a_mask_that_hides_padding_by_itself(mask):
    """What models pass: padded keys hidden, padded rows seeing nothing at all."""
    valid = torch.stack([valid_of(*padding) for padding in PADDING.values()])
    dense = mask[None] & valid[:, None, :] & valid[:, :, None]
    visibility = from_dense(dense, valid)
    for item, row in enumerate(valid):
        same_as(visibility.select(item, row.nonzero().flatten()), compressed(mask, row))


def test_padding_in_the_middle_is_cut_out():
    valid = torch.ones(T, dtype=torch.bool)
    valid[9:12] = False
    mask = MASKS["sliding"] & valid & valid[:, None]
    visibility = from_dense(mask[None], valid[None])
    same_as(visibility.select(0, valid.nonzero().flatten()), compressed(mask, valid))


def test_select_takes_any_positions():
    positions = torch.tensor([1, 2, 5, 6, 7, 11, 20])
    for mask in (MASKS["causal"], MASKS["prefix"], MASKS["bidirectional"]):
        same_as(from_dense(mask[None]).select(0, positions), mask[positions][:, positions])


def test_select_of_a_shared_row_serves_every_item():
    visibility = causal(T, T)
    assert torch.equal(visibility.select(3, torch.arange(5)).high, torch.arange(5)[None])


def test_causal_and_everything():
    same_as(causal(T, T), MASKS["causal"])
    same_as(everything(T, T), MASKS["bidirectional"])
    assert causal(4, 2).high.tolist() == [[0, 1, 1, 1]]
    assert everything(1, 9).count.tolist() == [[9]]


def test_blocks_of_a_batch():
    valid = torch.stack([valid_of(0, 0), valid_of(0, 4)])
    visibility = from_dense(MASKS["causal"][None], valid)
    visible, full_from, full_to = visibility.block(2, 6)
    assert visible.shape == (2, 1, 4, 6)
    assert torch.equal(visible[0], visible[1])
    assert (full_from, full_to) == (0, 3)


def test_the_same_question_is_answered_once():
    visibility = causal(T, T)
    assert visibility.block(0, 4)[0] is visibility.block(0, 4)[0]
    assert visibility.seen_by()[0] is visibility.seen_by()[0]
    assert visibility.uniform_mass() is visibility.uniform_mass()


@pytest.mark.parametrize(
    "mask",
    [
        pair(lambda t, j: j <= t and (t - j) % 2 == 0),  # dilated
        pair(lambda t, j: j <= t and (t - j < 4 or j == 0)),  # a window and a sink
        pair(lambda t, j: j <= t and not (t == 9 and j == 4)),  # one hole
        pair(lambda t, j: j < t),  # the first row sees nothing
    ],
    ids=["dilated", "sink", "hole", "nothing"],
)
def test_scattered_masks_are_refused(mask):
    with pytest.raises(UnsupportedModel, match="see keys that are not one run of neighbours; geomprobe reads causal"):
        from_dense(mask[None])


def test_a_hole_only_counts_among_valid_tokens():
    mask = pair(lambda t, j: j <= t and not (t == 9 and j == 4))
    valid = torch.ones(1, T, dtype=torch.bool)
    with pytest.raises(UnsupportedModel, match="not one run of neighbours"):
        from_dense(mask[None], valid)
    valid[0, 4] = False
    same_as(from_dense(mask[None], valid).select(0, valid[0].nonzero().flatten()), MASKS["causal"][1:, 1:])


# The running maximum that fills the rows of padding also rewrites the rows
# of valid tokens, so a mask that moves back is misread in silence and the check of from_intervals never sees it.
@pytest.mark.parametrize(
    "mask",
    [pair(lambda t, j: j <= T - 1 - t), pair(lambda t, j: t <= j <= t + 3 if t != 5 else j == 2)],
    ids=["backwards", "a step back"],
)
def test_masks_that_move_back_are_refused(mask):
    with pytest.raises(UnsupportedModel, match="first and last visible key never move back"):
        from_dense(mask[None])


def test_intervals_that_move_back_are_refused():
    steady, back = torch.tensor([[1, 2, 3, 3]]), torch.tensor([[1, 2, 1, 3]])
    assert from_intervals(steady, steady, 4).count.tolist() == [[1, 1, 1, 1]]
    for low, high in ((back, steady), (steady, back)):
        with pytest.raises(UnsupportedModel, match="first and last visible key never move back"):
            from_intervals(low, high, 4)


def test_a_key_that_nobody_sees():
    visibility = Visibility(torch.tensor([[0, 2, 2]]), torch.tensor([[0, 2, 3]]), 4)
    first, last = visibility.seen_by()
    assert first[0, 1] > last[0, 1]
    assert visibility.uniform_mass()[0].tolist() == pytest.approx([1, 0, 1.5, 0.5])
