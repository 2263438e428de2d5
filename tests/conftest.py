"""For all tests."""

import os

# Before torch is imported, here and in the processes that tests start: tiny models gain nothing from more threads, and
# wait for them where cores are shared.
os.environ.setdefault("OMP_NUM_THREADS", "1")
