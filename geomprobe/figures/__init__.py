"""Figures out of runs: draw_<name>(run, ax) -> Axes."""
