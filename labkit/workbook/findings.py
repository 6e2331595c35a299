"""A finding of the checker in words, a table and a picture."""

from labkit.workbook import checker, registry
from labkit.workbook.catalogue import has, text
from labkit.workbook.report import Report, comparison


def report(item: registry.Exercise, finding: checker.Finding, seconds: float) -> Report:
    """A finding in words: the diagnosis first, the traceback folded below."""
    result = Report(finding.outcome, _title(item.id, finding.outcome))
    say = result.sentences.append
    if finding.outcome == "not attempted":
        say(("", text("check.not attempted.more")))
    if finding.reason:
        say(("", text(finding.reason, **finding.values)))
    if finding.unknown:
        names = ", ".join(f"`{name}`" for name in finding.unknown)
        own = f"{item.notebook}.unknown"  # a kernel, for one, can import nothing
        say(("", text(own if has(own) else "check.unknown", names=names, module=item.module)))
    if finding.endless:
        say(("", text("check.endless", seconds=seconds)))
    if finding.endless and finding.line:
        say(("", text("check.endless_at", line=finding.line)))
    if finding.mistake:
        say((text("check.mistake"), text(f"{item.id}.mistake.{finding.mistake}")))
    if finding.outcome in ("wrong", "crashed") and finding.case is not None:
        case = item.cases[finding.case]
        broke = finding.outcome == "wrong" and not finding.endless
        say((text("check.case" if broke else "check.tried"), text(f"{item.id}.case.{case.name}")))
        if broke:
            head = ["", text("check.expected"), text("check.yours")]
            result.table = comparison(case.expected, finding.found, head)
            result.picture = drawn(case, finding.found)
    if finding.error:
        say(("", f"`{finding.error.strip().splitlines()[-1]}`"))
        result.folded.append((text("check.traceback"), finding.error))
    if finding.printed and finding.outcome != "passed":
        result.folded.append((text("check.printed"), finding.printed))
    return result


def drawn(case: registry.Case, found):
    """The picture of what a part did in a case, if the case has one and it can be drawn."""
    if case.draw is None or not isinstance(found, dict) or "raised" in found:
        return None
    try:
        return case.draw(case.expected, found)
    except Exception:  # a part may have done anything; the table beside it says what
        return None


def not_attempted(exercise_id: str, lang: str) -> Report:
    """What `check` says of a blank cell; the build stores it in the exercise notebooks."""
    more = text("check.not attempted.more", lang)
    return Report("not attempted", _title(exercise_id, "not attempted", lang), [("", more)])


def _title(exercise_id: str, outcome: str, lang: str | None = None) -> str:
    title = text(f"{exercise_id}.title", lang)
    stop = "" if title[-1] in "?!" else "."
    return f"{exercise_id} {title}{stop} {text(f'check.{outcome}', lang)}"
