"""The log: one line for each thing that happened, as text for people or JSON for machines.

No prompt and no answer is written unless the operator asks for it (--log-prompts).
"""

import json
import logging
import sys
import time

from labkit.serving.lifecycle import Ticket

PLAIN = {*logging.LogRecord("", 0, "", 0, "", (), None).__dict__, "message", "taskName"}
log = logging.getLogger("labkit.requests")


def fields_of(record: logging.LogRecord) -> dict:
    """What was given as `extra`; names with a _ are a library's own."""
    given = {name: value for name, value in record.__dict__.items() if name not in PLAIN}
    return {name: value for name, value in given.items() if name[0] != "_"}


class JSONFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{stamp}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def plain(value) -> str:
    """A value on one line: what a client sends may hold line ends and a terminal's commands."""
    text = "-" if value is None else str(value)
    return text if text.isprintable() else repr(text)


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%H:%M:%S", time.localtime(record.created))
        told = [f"{name}={plain(value)}" for name, value in fields_of(record).items()]
        line = " ".join([stamp, f"{record.levelname:7}", record.getMessage(), *told])
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def set_up(form: str | None) -> None:
    """Everything goes to standard error; uvicorn's own lines only when they are warnings."""
    form = form or ("text" if sys.stderr.isatty() else "json")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextFormatter() if form == "text" else JSONFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("labkit").setLevel(logging.INFO)


def log_request(ticket: Ticket, prompts: list[str] | None = None, answers=None) -> None:
    """One line about a request that has ended; with its text only if that is given."""
    errors = [choice.output.error for choice in ticket.choices if choice.output.error]
    told = {
        "request_id": ticket.id,
        "label": ticket.asked.label or None,
        "endpoint": ticket.asked.endpoint,
        "client": ticket.client,
        "tenant": ticket.asked.tenant or None,
        "priority": ticket.asked.priority,
        "finish_reason": ticket.finish_reasons,
        "error": errors[0] if errors else None,
        "prompt_tokens": ticket.num_prompt_tokens,
        "output_tokens": ticket.num_tokens,
        "preemptions": ticket.num_preemptions,
        "ttft_s": ticket.ttft and round(ticket.ttft, 4),
        "e2e_s": round(ticket.ended - ticket.arrival, 4),
    }
    if prompts is not None:
        told |= {"prompts": prompts, "answers": answers}
    log.info("request ended", extra=told)
