"""Batching against no batching: the bundled model behind the same service, with --batching on and off.

Both servers run side by side, and are driven in turns; `on again` is a second server with batching: its ratio to the
first is the noise.

usage: python -m benchmarks.batching [--seconds 8] [--rounds 4] [--connections 32 1] [--texts FILE]
"""

import argparse
from contextlib import ExitStack
from pathlib import Path

from benchmarks.load import alternate, free_port, ratio, server, table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--connections", type=int, nargs="+", default=[32, 1])
    parser.add_argument("--texts", type=Path, help="a file with a text in each line; a few built-in ones by default")
    args = parser.parse_args()
    with ExitStack() as stack:
        runs = []
        for name, batching in (("off", "off"), ("on", "on"), ("on again", "on")):
            port = free_port()
            command = ["-m", "app", "serve", "--port", str(port), "--batching", batching, "--log-level", "error"]
            runs.append((name, stack.enter_context(server(command, port, "/ready")) + "/embed"))
        for connections in args.connections:
            results = alternate(runs, connections, args.seconds, args.rounds, args.texts)
            print(f"\n{connections} connections\n\n{table(results)}\n")
            print(ratio(results, "on", "off"))
            print(ratio(results, "on", "on again"), flush=True)


if __name__ == "__main__":
    main()
