"""What a page costs: seconds from a run folder to report.html in a process of its own, and what it is made of.

    python benchmarks/page_seconds.py RUN [--repeats 3]

The run is copied, so that its own page stays. Each repeat is a new process, as for `geomprobe report`; beside it stand
the seconds of the imports alone and the bytes of the page by part. Cores that others use make it slower than it is:
the time of the processor is printed too.
"""

import argparse
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

IMPORTS = "import geomprobe.pages.page"
REPORT = "import sys; from geomprobe.pages.page import report; report(sys.argv[1], quiet=True)"
NO_TORCH = "; assert not {'torch', 'transformers'} & set(sys.modules)"
PARTS = {
    "pictures": r'src="data:image/[^"]*"',
    "plotly, packed": r'<script type="text/plain"[^>]*>[^<]*',
    "charts, map of heads and rows": r'<script type="application/json">[^<]*',
}


def seconds(code: str, *given: str) -> tuple[float, float]:
    """Seconds by the clock and of the processor, children included."""
    before, begun = _processor(), time.perf_counter()
    subprocess.run([sys.executable, "-c", code, *given], check=True)
    return time.perf_counter() - begun, _processor() - before


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def told(name: str, times: list[tuple[float, float]]) -> str:
    """The median and the range by the clock, and the median of the processor."""
    clock = sorted(wall for wall, _ in times)
    processor = statistics.median(cpu for _, cpu in times)
    return (
        f"{name}: {statistics.median(clock):.2f} s (of {len(times)}: {clock[0]:.2f} to {clock[-1]:.2f}), "
        f"processor {processor:.2f} s"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "run"
        shutil.copytree(options.run, copy, ignore=shutil.ignore_patterns("figures", "vectors", "report.*"))
        print(told("imports", [seconds(IMPORTS) for _ in range(options.repeats)]))
        print(told("page, imports included", [seconds(REPORT + NO_TORCH, str(copy)) for _ in range(options.repeats)]))
        page = (copy / "report.html").read_text(encoding="utf-8")
    print(f"report.html: {len(page.encode()) / 1e6:.2f} MB")
    for name, pattern in PARTS.items():
        print(f"  {name}: {sum(len(found.encode()) for found in re.findall(pattern, page)) / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
