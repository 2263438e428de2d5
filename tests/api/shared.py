"""What the tests of `analyze` share: a text, a shape, and the comparison of two runs."""

import pandas as pd

SENTENCES = (
    "The old house stood at the end of the lane, and the wind went through it as it pleased.",
    "She said that in the winter of that year no ship had come into the harbour for 12 weeks.",
    "When the bell rang they were all in the garden; nobody heard it, and the door stayed shut.",
    "“It is not the letter,” he answered, “but what was written on the back of it.”",
)
SHAPE = {"window": 48, "windows": 5, "batch_size": 2, "quiet": True}


def assert_same_tables(run, expected, **tolerance):
    assert list(run.tables) == list(expected.tables)
    for name, table in expected.tables.items():
        pd.testing.assert_frame_equal(run.tables[name], table, obj=f"table {name}", **tolerance)


def stop_at(at, error):
    """What stands in for the progress bar and raises when the pass has come so far."""

    def update(_bar, done, _tokens):
        if done >= at:
            raise error

    return update
