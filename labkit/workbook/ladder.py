"""`ladder(rung)`: what each rung so far brings on this machine, with the learner's own parts."""

from collections.abc import Iterator

from labkit.workbook import ladder_rows
from labkit.workbook.catalogue import text
from labkit.workbook.ladder_rows import Asked
from labkit.workbook.ladder_run import POLICY
from labkit.workbook.report import Report, Table

MODEL = "smollm2-135m"
COLUMNS = ("rung", "whose", "tokens_per_s", "ttft", "memory", "computed", "date")
PATIENCE = (10.0, 5.0)  # a learner's rung may take 10 s and five times as long as labkit's own


def ladder(rung: str, again: bool = False, model: str = MODEL) -> None:
    """Measures every rung up to `rung` on one small workload; shows a table and a picture.

    Rows of labkit's own rungs are kept, so that each is measured once (with `again`, now); the
    last two are measured now, since they are compared (the slow first two but once), and then the
    last one with the learner's passed parts, in a process of its own. What a part breaks is told
    in words. Never raises for it.
    """
    from labkit import rungs
    from labkit.model import best_device
    from labkit.workbook.session import _show

    if rung not in rungs.RUNGS:
        _show(Report("note", text("ladder.unknown", rung=repr(rung), rungs=", ".join(rungs.RUNGS))))
        return
    names, device = rungs.RUNGS[: rungs.RUNGS.index(rung) + 1], best_device()
    key = ladder_rows.key_of(model, device)
    rows = {} if again else ladder_rows.kept(key)
    fresh = {rung} | {*names[-2:]} - {*rungs.ON_TRANSFORMERS}
    missing = [name for name in names if name not in rows or name in fresh]
    print(text("ladder.doing", names=", ".join(missing)), flush=True)
    own = ladder_rows.ask(missing, model, device, tell=tell)
    ladder_rows.keep(key, own.rows)
    rows = {name: row for name, row in (rows | own.rows).items() if name in names}
    if len(rows) < len(names):
        _show(Report("crashed", text("ladder.failed"), [*ending(own)]))
        return
    yours, plain = with_parts(rung, model, device, rows[rung])
    _show(report(names, device, rows, yours, plain))


def tell(row: dict, whose: str = "labkit") -> None:
    """One line when a rung has been measured."""
    print(f"{row['rung']} ({whose}): {row['tokens_per_s']:.1f} tokens/s", flush=True)


def with_parts(rung: str, model: str, device: str, row: dict) -> tuple[Asked | None, dict | None]:
    """The rung with the learner's parts, None when there are none on its path; and labkit's own
    with the textbook's attention, when a part of that is the learner's."""
    from labkit import mine, rungs
    from labkit.workbook import parts, registry

    saved = [one for one in sorted(mine.on_path(rung, POLICY)) if parts.part_path(one).is_file()]
    if not saved:
        return None, None
    about = [rung], model, device
    modules = {registry.get(one).module for one in saved}
    plain = None
    if mine.REFERENCE in modules and rung not in rungs.ON_TRANSFORMERS:
        compared = ladder_rows.ask(*about, reference=True, tell=lambda r: tell(r, "textbook"))
        plain = compared.rows.get(rung)
    seconds = PATIENCE[0] + PATIENCE[1] * (plain or row)["seconds"]
    yours = ladder_rows.ask(*about, mine=True, seconds=seconds, tell=lambda r: tell(r, "yours"))
    return yours, plain


def report(names, device: str, rows: dict, yours: Asked | None, plain: dict | None) -> Report:
    """Words, table and picture."""
    from labkit.workbook.figures.ladder import ladder_figure

    rung = names[-1]
    row = yours.rows.get(rung) if yours and yours.parts else None
    title = text("ladder.title", rung=rung, device=device, tokens=rows[rung]["tokens"])
    result = Report("note", title, [("", sentence) for sentence in brought(names, rows)])
    result.sentences += own_parts(yours, row, plain or rows[rung])
    if plain:
        ratio = rows[rung]["tokens_per_s"] / plain["tokens_per_s"]
        result.sentences.append(("", text("ladder.textbook", ratio=ratio)))
    if len({one["date"] for one in rows.values()}) > 1:
        result.sentences.append(("", text("ladder.kept", rung=rung)))
    table = Table([text(f"ladder.{column}") for column in COLUMNS], [])
    table.rows = [cells(rows[name], text("ladder.labkit")) for name in names]
    table.rows += [cells(plain, text("ladder.plain"))] if plain else []
    table.rows += [cells(row, text("ladder.mine"))] if row else []
    result.table, result.picture = table, ladder_figure(names, rows, row, plain)
    if yours and yours.failed and yours.failed["why"] == "ended":
        result.folded.append((text("check.printed"), yours.failed["failed"]))
    return result


def brought(names, rows: dict) -> Iterator[str]:
    """What the last rung changes against the one before."""
    now = rows[names[-1]]
    values = {"rung": names[-1], "speed": now["tokens_per_s"], "ttft": now["ttft_p50_s"]}
    if len(names) == 1:
        yield text("ladder.first", **values)
        return
    before = rows[names[-2]]
    ratio = now["tokens_per_s"] / before["tokens_per_s"]
    yield text("ladder.brought", **values, ratio=ratio, before=names[-2],
               before_speed=before["tokens_per_s"], before_ttft=before["ttft_p50_s"])  # fmt: skip


def own_parts(yours: Asked | None, row: dict | None, own: dict) -> Iterator[tuple[str, str]]:
    """What is to be said of the learner's parts."""
    if yours is None or not (yours.parts or yours.failed or yours.problems):
        yield "", text("ladder.no_parts")
        return
    for problem in yours.problems:
        yield "", text("ladder.problem", problem=problem)
    label = text("ladder.yours", ids=", ".join(yours.parts))
    if row is None:
        for _, sentence in ending(yours):
            yield label, sentence
        return
    ratio = row["tokens_per_s"] / own["tokens_per_s"]
    changed = changes(own["token_ids"], row["token_ids"])
    values = {"speed": row["tokens_per_s"], "ratio": ratio}
    if changed:
        yield label, text("ladder.changed", changed=changed[0], count=len(changed), **values)
    else:
        yield label, text("ladder.same", **values)


def changes(expected: dict, found: dict) -> list[str]:
    """Requests whose tokens differ, and from which token on: "r3@0"."""
    from labkit.measure.bench.ladder import differences

    return differences(expected, found)


def ending(asked: Asked) -> Iterator[tuple[str, str]]:
    """Why there is no row."""
    failed = asked.failed or {"why": "ended", "status": 0, "failed": ""}
    if failed["why"] == "crashed":
        yield "", text("ladder.crashed", error=failed["failed"])
        if failed["at"]:
            yield "", text("ladder.crashed_at", at=failed["at"], line=failed["text"])
    elif failed["why"] == "endless":
        yield "", text("ladder.endless", seconds=failed["seconds"])
        if failed["at"]:
            yield "", text("ladder.endless_at", at=failed["at"], module=failed["module"])
    else:
        yield "", text("ladder.ended", status=failed["status"])


def cells(row: dict, whose: str) -> list[str]:
    """A row of the table."""
    memory = f"{row['kv_held_bytes'] / 1e6:.1f}"
    numbers = [f"{row['tokens_per_s']:.1f}", f"{row['ttft_p50_s']:.2f}", memory]
    return [row["rung"], whose, *numbers, f"{row['token_forwards']:,}", row["date"]]
