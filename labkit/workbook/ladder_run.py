"""Measures rungs in a process of its own, for `ladder`; what it finds goes out as lines of JSON.

    python -m labkit.workbook.ladder_run '{"rungs": ["naive"], "model": "tiny", "device": "cpu",
        "mine": true, "reference": false, "seconds": 60}'

With `mine` the learner's passed parts run, and `reference` asks for the textbook's attention,
which a part of it brings along. Lines are {"parts": ids, "problems": [...]} (at the beginning
what was found, at the end what ran), {"doing": text}, {"row": {...}}, and {"failed": error,
"at": function, "text": line} of the learner's part that an error came through.
"""

import faulthandler
import json
import os
import sys
import traceback

PROMPTS = (8, 10, 12, 16, 20, 24, 28, 36)  # tokens; by length, which is kind to fixed batches
OUTPUTS = (4, 5, 3, 8, 8, 10, 7, 6)
LEAST_S = 0.8  # a short run is repeated until this is full, and the best one counts
POLICY = "priority"  # of the last rung, which would have others too
WITH_YOUR = " with your "  # in the names of a learner's code, see labkit.mine


def main(asked: dict) -> int:
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a part prints is no message

    def send(**message) -> None:
        channel.write(json.dumps(message, default=repr) + "\n")
        channel.flush()

    mine = None
    try:
        if asked["mine"]:  # before anything is imported that a learner's part may be in
            mine = install(asked["rungs"])
            send(parts=mine.ids, problems=mine.problems)
        measure(asked, send)
    except BaseException as error:  # a part may raise anything
        at = learners_frame(error)
        said = traceback.format_exception_only(error)[-1].strip()
        send(failed=said, at=at and at.name, text=at and at.line)
        return 1
    finally:
        if mine is not None:
            send(parts=mine.loaded, problems=mine.problems)
    return 0


def install(names: list[str]):
    """The parts that lie on the path of the rungs, and whose file is there."""
    from labkit import mine
    from labkit.workbook import parts

    wanted = set().union(*(mine.on_path(name, POLICY) for name in names))
    return mine.install([one for one in wanted if parts.part_path(one).is_file()])


def measure(asked: dict, send) -> None:
    """Every rung that is asked for, on the same requests."""
    import gc

    from labkit import rungs
    from labkit.measure.bench import ladder
    from labkit.mine import REFERENCE, has_part_of

    attention = "torch" if asked["reference"] or has_part_of(REFERENCE) else None
    loaded = on_transformers = None
    for name in asked["rungs"]:
        if on_transformers != (name in rungs.ON_TRANSFORMERS):
            send(doing="loading")
            loaded = None  # memory holds one model at a time
            gc.collect()
            loaded = rungs.load_for(
                name, asked["model"], "float32", asked["device"], attention=attention
            )
            on_transformers = name in rungs.ON_TRANSFORMERS
        requests, best, spent = workload(loaded), None, 0.0
        send(doing="measuring")
        if asked["seconds"]:
            faulthandler.dump_traceback_later(asked["seconds"], exit=True)
        while best is None or spent < LEAST_S:
            row, run = ladder.measure(name, loaded, requests, lambda bar: None)
            spent += row["seconds"]
            if best is None or row["seconds"] < best["seconds"]:
                best = row | {"token_ids": run.token_ids}
        faulthandler.cancel_dump_traceback_later()
        send(row=best)


def workload(loaded) -> list:
    """Eight requests, all there at once, each with its number of tokens to make."""
    from labkit.engine.request import Request
    from labkit.paths import repo_root

    prose = repo_root() / "labkit" / "measure" / "bench" / "prose.txt"
    token_ids = loaded.tokenizer.encode(prose.read_text(encoding="utf-8")[:3000])
    begin, requests = 0, []
    for number, (prompt, output) in enumerate(zip(PROMPTS, OUTPUTS, strict=True)):
        own = token_ids[begin : begin + prompt]
        requests.append(Request(f"r{number}", own, max_tokens=output, ignore_eos=True))
        begin += prompt
    return requests


def learners_frame(error: BaseException):
    """The last line of a learner's part that an error came through, or None."""
    frames = traceback.extract_tb(error.__traceback__)
    return next((one for one in reversed(frames) if WITH_YOUR in one.filename), None)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
