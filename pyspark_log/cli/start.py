"""The entry point of `pylog`. Do not import it elsewhere: importing changes what Ctrl-C does."""

import os

try:
    from pyspark_log.cli import interrupts

    interrupts.begin()
except KeyboardInterrupt:
    os._exit(130)


def main() -> None:
    """Runs the command."""
    from pyspark_log.cli.main import main as command  # noqa: PLC0415  (Ctrl-C must be safe by now)

    interrupts.run(command)


if __name__ == "__main__":
    main()
