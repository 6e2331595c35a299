"""Notebook 07, a request's text and a request's end: `StopStrings.release`, `Scheduler._forget`."""

from labkit.workbook import drawings
from labkit.workbook.registry import Case, Exercise, Mistake


def _say(*pieces, stop):
    def observe(part):
        strings = part.StopStrings(stop)
        sent = [strings.push(piece)[0] for piece in pieces]
        end = strings.flush()
        found = {"sent with each piece": sent, "at the end": end, "met": strings.met}
        return found | {"pending at the end": strings.pending}

    return observe


def _met(*pieces, stop):
    def observe(part):
        strings = part.StopStrings(stop)
        return {"met with each piece": [strings.push(piece)[1] for piece in pieces]}

    return observe


def _sent(*pieces, end="", met=None):
    sent = {"sent with each piece": [*pieces], "at the end": end, "met": met}
    return sent | {"pending at the end": ""}


NEEDLE = ("DEFGHIJ",)

RELEASE = Exercise(
    id="07.1",
    module="labkit.model.stop_strings",
    symbol="StopStrings.release",
    core=True,
    minutes=25,
    difficulty=2,
    cases=(
        Case("no_stop", _say("ab", "c", stop=()), _sent("ab", "c")),
        Case("whole", _say("abENDcd", stop=("END",)), _sent("ab", met="END")),
        Case("alone", _say("END", stop=("END",)), _sent("", met="END")),
        Case(
            "over_tokens",
            _say("D", "EF", "G", "HI", "J", stop=NEEDLE),
            _sent("", "", "", "", "", met="DEFGHIJ"),
        ),
        Case("not_longer", _say("x", "DEF", "x", "DEF", stop=NEEDLE),
             _sent("x", "", "DEFx", "", end="DEF")),
        Case("shortest_wait", _say("xAAB", "D", "AB", "C", stop=("ABC",)),
             _sent("xA", "ABD", "", "", met="ABC")),
        Case("overlaps_itself", _say("xABA", "C", stop=("ABAC",)), _sent("x", "", met="ABAC")),
        Case("nothing_after", _say("aEND", "b", "c", stop=("END",)),
             _sent("a", "", "", met="END")),
        Case("first_to_begin", _say("a so late", stop=("late", "so")), _sent("a ", met="so")),
        Case("same_place", _say("xabc", stop=("abc", "ab")), _sent("x", met="ab")),
        Case("shorter_one_is_there", _met("xab", "c", stop=("abc", "ab")),
             {"met with each piece": ["ab", "ab"]}),
        Case("empty_piece", _say("aD", "", "E", stop=("DE",)), _sent("a", "", "", met="DE")),
        Case("no_pattern", _say("so b, (b?)", stop=("b?",)), _sent("so b, (", met="b?")),
        Case("longer_one_possible", _say("ABCD", "E", stop=("CD", "ABCDE")),
             _sent("", "", met="ABCDE")),
        Case("longer_one_failed", _say("ABCD", "x", stop=("CD", "ABCDE")),
             _sent("", "AB", met="CD")),
        Case("met_at_the_end", _say("ABCD", stop=("CD", "ABCDE")),
             _sent("", end="AB", met="CD")),
    ),
    mistakes=(
        Mistake("leaks_the_first_half",
                ((" or (more_may_come and self.may_begin(text, place))", ""),)),
        Mistake("last_piece_only", (("text = self.pending + text", "pass"),)),
        Mistake("holds_everything", (("self.may_begin(text, place)", "True"),)),
        Mistake(
            "longest_always_held",
            (("self.may_begin(text, place)", "len(text) - place < len(self.stop[-1])"),),
        ),
        Mistake("text_after_the_stop",
                (("    if self.met is not None:\n        return \"\"\n", ""),)),
        Mistake("stop_itself_sent",
                (("return text[:place]", "return text[: place + len(self.met or \"\")]"),)),
        Mistake("later_one_first", (("for place in range(len(text))",
                                     "for place in reversed(range(len(text)))"),)),
        Mistake("longest_of_the_same_place",
                (("for stop in self.stop if", "for stop in self.stop[::-1] if"),)),
        Mistake("waits_for_the_longer", (
            ("        self.met = next((stop for stop in self.stop if ",
             "        begins = more_may_come and self.may_begin(text, place)\n"
             "        self.met = next((stop for stop in self.stop if not begins and "),
        )),
        Mistake("forgets_to_flush", (("more_may_come and self.may_begin", "self.may_begin"),)),
    ),
)  # fmt: skip


def _play(*actions, blocks=8, slots=2, budget=16, host=0, fair=False):
    """A scheduler, blocks of 4 tokens. An action is "step", ("abort", id), or what is added:
    (id, prompt tokens, max_tokens), with the parent's id behind it for a copy."""

    def observe(part):
        from labkit.engine.blocks import BlockPool
        from labkit.engine.policies import FCFS, Fair
        from labkit.engine.policies.preemption import Recompute, Swap
        from labkit.engine.request import Request
        from labkit.measure.experiments.processes_virtual import Said, next_token

        pool, far = BlockPool(blocks, 4, False), BlockPool(host, 4, False) if host else None
        scheduler = part.Scheduler(
            pool, budget, slots, policy=Fair() if fair else FCFS(),
            preemption=Swap() if host else Recompute(), host=far,
        )  # fmt: skip
        said, steps, made = [], [], {}
        for action in actions:
            if action == "step":
                plan = scheduler.plan(float(len(steps)))
                tokens = {name: chunk.num_tokens for name, chunk in plan.chunks.items()}
                preempted = [request.request_id for request in plan.preempted]
                steps.append({"tokens": tokens, "preempted": preempted})
                chosen = [Said(next_token(c.request)) for c in plan.chunks.values() if c.samples]
                scheduler.commit(plan, chosen, float(len(steps)))
            elif action[0] == "abort":
                said.append(scheduler.abort(action[1]))
            else:
                name, length, most, *parent = action
                request = Request(name, [ord(name[0])] * length, most, copy_of=(*parent, None)[0])
                made[name] = request
                scheduler.add(request)
        return {
            "steps": steps,
            "abort says": said,
            "block tables": {name: list(r.block_table) for name, r in made.items()},
            "blocks in use": pool.num_used,
            "blocks of the host in use": far.num_used if far else 0,
            "slots in use": list(scheduler.running),
            "in line": list(scheduler.policy.waiting),
            "unfinished": list(scheduler.known),
        } | ({"in the policy's account": list(scheduler.policy.served)} if fair else {})

    return observe


def _left(steps, tables, said=(), slots=(), line=(), used=0):
    """What must be left: nothing of those that ended."""
    return {
        "steps": [
            step if "tokens" in step else {"tokens": step, "preempted": []} for step in steps
        ],
        "abort says": [*said],
        "block tables": tables,
        "blocks in use": used,
        "blocks of the host in use": 0,
        "slots in use": [*slots],
        "in line": [*line],
        "unfinished": [*slots, *line],
    }


def _draw(expected, found):
    return drawings.schedule(expected["steps"], found["steps"])


def _draw_blocks(expected, found):
    return drawings.block_tables(expected["block tables"], found["block tables"], 4)


# Two prompts of 7 in 4 blocks: with its 9th token "a" needs a third block, and "b" gives way.
CROWDED = (("a", 7, 6), ("b", 7, 6), "step", "step", "step", ("abort", "b"), "step")
CROWDED_STEPS = (
    {"a": 7, "b": 7}, {"a": 1, "b": 1}, {"tokens": {"a": 1}, "preempted": ["b"]}, {"a": 1},
)  # fmt: skip

FORGET = Exercise(
    id="07.2",
    module="labkit.engine.scheduler",
    symbol="Scheduler._forget",
    core=True,
    minutes=25,
    difficulty=2,
    cases=(
        Case("finished", _play(("a", 6, 1), "step", "step"),
             _left([{"a": 6}, {}], {"a": []}), _draw),
        Case("running", _play(("a", 6, 4), "step", "step", ("abort", "a"), "step"),
             _left([{"a": 6}, {"a": 1}, {}], {"a": []}, [True]), _draw_blocks),
        Case("waiting",
             _play(("a", 3, 2), ("b", 3, 2), ("c", 3, 2), "step", ("abort", "b"), "step", "step",
                   slots=1),
             _left([{"a": 3}, {"a": 1}, {"c": 3}], {"a": [], "b": [], "c": [0]}, [True],
                   slots=["c"], used=1), _draw),
        Case("both_clients_left",
             _play(("a", 3, 9), ("b", 3, 9), ("c", 3, 9), "step", ("abort", "a"), ("abort", "b"),
                   "step", slots=1),
             _left([{"a": 3}, {"c": 3}], {"a": [], "b": [], "c": [0]}, [True, True],
                   slots=["c"], used=1), _draw),
        Case("twice", _play(("a", 6, 4), "step", ("abort", "a"), ("abort", "a"), ("abort", "z")),
             _left([{"a": 6}], {"a": []}, [True, False, False]), _draw_blocks),
        Case("preempted", _play(*CROWDED, blocks=4),
             _left(CROWDED_STEPS, {"a": [0, 1, 2], "b": []}, [True], slots=["a"], used=3), _draw),
        Case("swapped", _play(*CROWDED, blocks=4, host=4),
             _left(CROWDED_STEPS, {"a": [0, 1, 2], "b": []}, [True], slots=["a"], used=3), _draw),
        Case("parent_of_a_copy",
             _play(("a", 8, 4), ("a/1", 8, 4, "a"), "step", ("abort", "a"), "step", "step",
                   budget=4),
             _left([{"a": 4}, {"a/1": 4}, {"a/1": 4}], {"a": [], "a/1": [0, 1]}, [True],
                   slots=["a/1"], used=2), _draw),
        Case("copy",
             _play(("a", 8, 4), ("a/1", 8, 4, "a"), "step", ("abort", "a/1"), "step", "step",
                   budget=4),
             _left([{"a": 4}, {"a": 4}, {"a": 1}], {"a": [0, 1, 2], "a/1": []}, [True],
                   slots=["a"], used=3), _draw),
        Case("account", _play(("a", 6, 4), "step", ("abort", "a"), fair=True),
             _left([{"a": 6}], {"a": []}, [True]) | {"in the policy's account": []}, _draw_blocks),
        Case("one_of_two_copies",
             _play(("a", 8, 4), ("a/1", 8, 4, "a"), ("a/2", 8, 4, "a"), "step", ("abort", "a/1"),
                   "step", "step", budget=4),
             _left([{"a": 4}, {"a": 4}, {"a": 1, "a/2": 1}],
                   {"a": [0, 1, 2], "a/1": [], "a/2": [0, 3]}, [True], slots=["a", "a/2"], used=4),
             _draw),
        Case("parent_in_line",
             _play(("z", 3, 9), ("a", 8, 4), ("a/1", 8, 4, "a"), "step", ("abort", "a"), "step",
                   ("abort", "z"), "step", slots=1),
             _left([{"z": 3}, {"z": 1}, {"a/1": 8}], {"z": [], "a": [], "a/1": [0, 1]},
                   [True, True], slots=["a/1"], used=2), _draw),
        Case("shared_blocks",
             _play(("a", 8, 4), ("a/1", 8, 4, "a"), "step", "step", ("abort", "a"), "step"),
             _left([{"a": 8}, {"a": 1, "a/1": 1}, {"a/1": 1}], {"a": [], "a/1": [0, 3, 1]}, [True],
                   slots=["a/1"], used=3), _draw_blocks),
    ),
    mistakes=(
        Mistake("blocks_leak", (("self.books.release(request)", "pass"),)),
        Mistake("host_blocks_leak", (
            ("self.books.release(request)",
             "self.pool.free(request.block_table)\n    request.block_table = []"),
        )),
        Mistake("ghost_in_line", (("self.policy.remove(request.request_id)", "pass"),)),
        Mistake("copies_wait_for_ever", (("self._start_copies(request)", "pass"),)),
        Mistake("copies_of_the_running_only", (
            ("    self._start_copies(request)\n",
             "    if request.request_id in self.running:\n        self._start_copies(request)\n"),
        )),
        Mistake("all_copies_dropped", (
            ("        self.copies[request.copy_of].remove(request)",
             "        del self.copies[request.copy_of]"),
        )),
        Mistake("copy_comes_back", (
            ("    if request in self.copies.get(request.copy_of, ()):\n"
             "        self.copies[request.copy_of].remove(request)\n", ""),
        )),
        Mistake("slot_kept", (("self.running.pop(request.request_id, None)", "pass"),)),
        Mistake("never_done", (("del self.known[request.request_id]", "pass"),)),
    ),
)  # fmt: skip

EXERCISES = (RELEASE, FORGET)
