"""python -m geomprobe, and the command `geomprobe`."""

import sys


def main() -> None:
    """Run the command line; a caller's mistake is one line on stderr and exit code 2."""
    from geomprobe.cli.app import run

    sys.exit(run())


if __name__ == "__main__":
    main()
