"""Where a learner stands: the ten questions judged, the exercises, what remains open. Pure reading.

Everything that the page and notebook 11 show is decided here, once.
"""

from dataclasses import dataclass, field

from labkit.paths import repo_root
from labkit.workbook import catalogue, parts, registry, routes
from labkit.workbook.catalogue import text
from labkit.workbook.plots import plain_number
from labkit.workbook.ten_questions import kept as kept_files
from labkit.workbook.ten_questions.kept import Comparison, Drawn, Kept, Measurement
from labkit.workbook.ten_questions.questions import OPEN, QUESTIONS, Finding, Question, verdict


@dataclass(frozen=True)
class Answer:
    """One of the ten questions, and what the learner has for it."""

    question: Question
    measured: dict[str, Measurement]  # by notebook
    findings: list[Finding]
    comparisons: list[Comparison]

    @property
    def verdict(self) -> str:
        return verdict(self.findings)

    @property
    def is_answered(self) -> bool:
        return self.verdict != OPEN

    @property
    def missing(self) -> list[str]:
        """Notebooks of this question that have no numbers yet."""
        return [n for n in self.question.notebooks if n not in self.measured]

    @property
    def pictures(self) -> list[Drawn]:
        return [picture for one in self.comparisons for picture in one.pictures]


@dataclass(frozen=True)
class Account:
    """All of it."""

    kept: Kept
    answers: list[Answer]
    rest: list[Comparison]  # of none of the ten questions
    not_passed: list[registry.Exercise]
    num_exercises: int
    minutes: dict[str, int] = field(default_factory=dict)  # of reading and running, by notebook
    is_sample: bool = False

    @property
    def num_answered(self) -> int:
        return sum(answer.is_answered for answer in self.answers)

    @property
    def num_hits(self) -> int:
        return sum(one.is_hit for one in self.kept.predicted)

    def reading(self, notebooks: list[str]) -> int:
        """Minutes that these notebooks take without their exercises."""
        return sum(self.minutes.get(notebook, 0) for notebook in notebooks)


def account(sample: bool = False) -> Account:
    """As things stand under `my/` now; or the sample, in which no exercise counts."""
    kept = kept_files.read(kept_files.SAMPLE if sample else None)
    answers = [answer(question, kept) for question in QUESTIONS]
    told = {key for question in QUESTIONS for key in question.predictions}
    exercises = [] if sample else list(registry.exercises().values())
    sources = sorted((repo_root() / "notebooks" / "source").glob("*.py"))
    return Account(
        kept,
        answers,
        rest=[one for key, one in sorted(kept.comparisons.items()) if key not in told],
        not_passed=[one for one in exercises if not parts.is_saved(one.id)],
        num_exercises=len(exercises),
        minutes={source.stem[:2]: routes.minutes(source, ())[0] for source in sources},
        is_sample=sample,
    )


def answer(question: Question, kept: Kept) -> Answer:
    """What is kept for one question, judged."""
    measured = {
        notebook: one
        for notebook, one in kept.answers.get(question.number, {}).items()
        if notebook in question.notebooks
    }
    numbers = {notebook: one.numbers for notebook, one in measured.items()}
    compared = [kept.comparisons[key] for key in question.predictions if key in kept.comparisons]
    return Answer(question, measured, question.findings(numbers), compared)


# ---- in words


def number(value: float) -> str:
    """As a person would write it; powers of ten where it would be long."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return plain_number(value)
    return "∞" if value == float("inf") else f"{value:.2g}"


def sentence(finding: Finding, number_of: int) -> str:
    """What a finding says, in the current language."""
    values = {name: number(value) for name, value in finding.values.items()}
    return text(f"report.{number_of}.{finding.key}", **{**dict.fromkeys("abcd", ""), **values})


def name_of(key: str) -> str:
    """What was predicted under a key, in the current language, or the key itself."""
    known = f"report.key.{key}"
    return text(known) if catalogue.has(known) else f"{key[:2]}: {key[3:].replace('_', ' ')}"


def label(key: str, account: Account) -> str:
    """A heading, in the sample's words where it is one."""
    return text(f"report.sample.{key}" if account.is_sample else f"report.{key}")


def named(notebooks: list[str]) -> str:
    """"notebook 03", "notebooks 03, 05", in the current language."""
    key = "report.one_notebook" if len(notebooks) == 1 else "report.some_notebooks"
    return text(key, numbers=", ".join(notebooks))


def outcome(one: Comparison) -> str:
    """How far off a prediction was."""
    if one.predicted is None:
        return text("report.no_guess")
    if one.is_hit:
        return text("report.hit")
    if one.ratio is None or one.ratio < 0:
        return text("report.no_ratio")
    return text("report.miss", ratio=number(one.ratio))


def commands(notebooks) -> str:
    """The command lines that open these notebooks, for a sentence."""
    return ", ".join(f"`python3 -m labkit lab {notebook}`" for notebook in notebooks)
