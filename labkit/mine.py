"""`serve --mine`: a learner's passed parts run in the server, by an import hook.

A module with parts under `my/parts` is executed from its own text with theirs spliced in. Nothing
is patched at run time, so `install` comes before the modules are imported, in every process. Loads
no torch, and nothing at all where no part is saved.
"""

import ast
import importlib.util
import linecache
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path

from labkit.paths import my_dir, repo_root

WHY = {  # a part can't be used; the keys are those of `parts.PartError`
    "check.signature": "labkit calls `{expected}`, and this is `{found}`",
    "check.syntax": "Python can't read line {line}: {reason}",
    "check.no_def": "there is no `def {name}` in it",
    "check.unreadable": "{reason}",
}
DECODER = "labkit.model.cpu_decoder"
REFERENCE = "labkit.kernels.reference"  # with a part of it, the server's attention is this one
TEXT = "labkit.model.text"  # from tokens to text, on every rung
ROOTS = {  # what `rungs.load_for` and `rungs.make` import for each rung
    "naive": ("labkit.engine.naive", TEXT),
    "static": ("labkit.engine.static", TEXT),
    "cached": ("labkit.engine.cached", DECODER, REFERENCE, TEXT),
    "paged": ("labkit.engine.paged", DECODER, REFERENCE, TEXT),
    "continuous": ("labkit.engine.continuous", DECODER, REFERENCE, TEXT),
    "preemptive": ("labkit.engine.continuous", "labkit.engine.policies", DECODER, REFERENCE, TEXT),
    "paced": ("labkit.engine.scheduler", "labkit.engine.policies", TEXT),  # the last two rungs
}
ROOMS = ("kernels", "model", "engine", "serving")  # what a server is made of
POLICIES = "labkit.engine.policies"
CHOSEN = ("priority", "fair", "deadline")  # one of them runs, though all are imported
WITH_POLICY = ("preemptive", "paced")


@dataclass
class Mine:
    """What `install` found. Exercises by id, in order.

    `ids` are those whose parts take the place of labkit's own wherever their modules are
    imported, `loaded` those of them whose modules this process has imported so far. `problems`
    has a sentence for each part that can't be used; labkit's own runs in its place.
    """

    ids: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def give_up(self, exercise_id: str, symbol: str, why: str) -> None:
        self.ids = [known for known in self.ids if known != exercise_id]
        unused = f"exercise {exercise_id}: your {symbol} can't be used, labkit's own runs: "
        self.problems.append(unused + why)


def install(exercise_ids: Iterable[str] | None = None) -> Mine:
    """Has modules with saved parts import with these parts in them, from now on in this process.

    With `exercise_ids` only those; one of them without a usable part is among the problems.
    Another call takes the place of the one before. Raises RuntimeError when a module with a part
    is loaded already, KeyError for an exercise that doesn't exist.
    """
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, Finder)]
    wanted = None if exercise_ids is None else sorted(set(exercise_ids))
    if wanted == [] or wanted is None and not any((my_dir() / "parts").glob("*.py")):
        return Mine()
    from labkit.workbook import registry

    mine, modules = Mine(), {}
    for exercise_id in registry.exercises() if wanted is None else wanted:
        exercise = registry.get(exercise_id)
        text = usable_part(exercise, mine, needed=wanted is not None)
        if text is not None:
            modules.setdefault(exercise.module, {})[exercise_id] = (exercise.symbol, text)
            mine.ids.append(exercise_id)
    for module, own in modules.items():
        if module in sys.modules:
            raise RuntimeError(
                f"module {module} is loaded already, and you have parts of it: {', '.join(own)}; "
                "call labkit.mine.install before anything imports it"
            )
    if modules:
        sys.meta_path.insert(0, Finder(modules, mine))
    return mine


def has_part_of(module: str) -> bool:
    """Whether this process has been told to run a learner's part of `module`."""
    return any(isinstance(f, Finder) and module in f.modules for f in sys.meta_path)


def usable_part(exercise, mine: Mine, needed: bool) -> str | None:
    """The saved part of an exercise, if it fits; else None, and a problem where there is one."""
    from labkit.workbook import cut, parts

    hole, why = parts.Hole.of(exercise), f"there is no {parts.part_path(exercise.id)}"
    try:
        text = parts.saved_part(hole)
        if text is not None:  # a `nonlocal x` is found by the compiler only
            compile(cut.splice(hole.source, {exercise.symbol: text}), hole.name, "exec")
            return text
    except parts.PartError as error:
        why, needed = WHY[error.key].format(**error.values), True
    except (SyntaxError, ValueError) as error:
        why, needed = str(error), True
    if needed:
        mine.give_up(exercise.id, exercise.symbol, why)
    return None


class Finder:
    """Finds the modules that have parts, before Python's own finders do.

    `modules` is {module: {exercise id: (symbol, text)}}.
    """

    def __init__(self, modules: dict[str, dict[str, tuple[str, str]]], mine: Mine):
        self.modules, self.mine = modules, mine

    def find_spec(self, name: str, path=None, target=None) -> ModuleSpec | None:
        if name not in self.modules:
            return None
        file = module_file(name)
        loader = SplicedLoader(name, file, self.modules[name], self.mine)
        spec = importlib.util.spec_from_file_location(name, file, loader=loader)
        spec.cached = None  # the .pyc there is of labkit's own text
        return spec


class SplicedLoader(SourceFileLoader):
    """Executes a module with parts in it. No .pyc is read or written.

    Its code has a name of its own, which tells whose lines a traceback shows; `__file__` is the
    module's.
    """

    def __init__(self, name: str, file: Path, own: dict[str, tuple[str, str]], mine: Mine):
        super().__init__(name, str(file))
        self.own, self.mine = own, mine

    def get_source(self, fullname: str) -> str:
        from labkit.workbook import cut, parts

        return cut.splice(parts.module_source(fullname), dict(self.own.values()))

    def get_code(self, fullname: str):
        from labkit.workbook import margin

        source, filename = self.get_source(fullname), self.path
        if self.own:
            filename = f"<{fullname} with your {', '.join(self.own)}>"
            linecache.cache[filename] = (len(source), None, margin.split_lines(source), filename)
        return compile(source, filename, "exec", dont_inherit=True)

    def exec_module(self, module) -> None:
        """As always; and labkit's own text if that fails with the parts and not without them."""
        before = dict(module.__dict__)
        try:
            super().exec_module(module)
            self.mine.loaded = sorted([*self.mine.loaded, *self.own])
        except (Exception, SystemExit) as error:
            given, self.own = self.own, {}
            module.__dict__.clear()
            module.__dict__.update(before)
            super().exec_module(module)
            why = f"{module.__name__} can't be imported with it ({type(error).__name__}: {error})"
            for exercise_id, (symbol, _) in given.items():
                self.mine.give_up(exercise_id, symbol, why)


def module_file(name: str) -> Path:
    return repo_root().joinpath(*name.split(".")).with_suffix(".py")


# ------------------------------------------------------------------ which parts a rung needs


def on_path(rung: str, policy: str | None = None) -> set[str]:
    """The exercises whose modules a server on this rung, or "paced", imports.

    As the import lines say, of the rung, its decoder, the text and `labkit.serving`; an import
    inside a function is not seen. Of the policies the one that is told; all where None is told
    and the rung lets one choose. What did run says `Mine.loaded`. Imports none of them itself.
    ValueError for an unknown rung.
    """
    if rung not in ROOTS:
        raise ValueError(f"rung {rung!r} is not known; accepted are {', '.join(ROOTS)}")
    from labkit.workbook import registry

    served = (repo_root() / "labkit" / "serving").rglob("*.py")
    reached = imported_from([*ROOTS[rung], *map(module_name, served)])
    idle = {f"{POLICIES}.{name}" for name in CHOSEN if name != policy}
    if rung not in WITH_POLICY or policy is not None:
        reached -= idle
    return {one.id for one in registry.exercises().values() if one.module in reached}


def module_name(file: Path) -> str:
    parts = file.relative_to(repo_root()).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_from(modules: Iterable[str]) -> set[str]:
    """These modules of a server's rooms, their packages, and what they import, and so on."""
    reached, left = set(), list(modules)
    while left:
        name = left.pop()
        room = name.split(".")[1:2]
        if name in reached or name.split(".")[0] != "labkit" or not {*room} & {*ROOMS}:
            continue
        file = module_file(name)
        if not file.is_file():
            file = file.with_suffix("") / "__init__.py"
        if not file.is_file():
            continue  # a name in a module
        reached.add(name)
        left += [name.rpartition(".")[0], *imports_of(ast.parse(file.read_bytes()))]
    return reached


def imports_of(node: ast.AST) -> Iterator[str]:
    """Names of modules, and names in them, that are imported when a module is executed."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield child.module or ""
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not (
            isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        ):
            yield from imports_of(child)
