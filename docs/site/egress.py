"""Write docs/security/egress.md: every field that leaves an agent, a curator or a tester, from the code.

``python docs/site/egress.py`` writes it; a test compares. Nothing is entered here: messages, routes, headers,
claims, parameters, verdicts and log lines are read from the models, the route tables and the source.
"""

# ruff: noqa: E501 (sentences of a page, written as they will stand there)

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel

from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.signing import CLAIMS, Envelope
from tacit_protocol.strict import Egress, egress_of

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

import declared_egress as egress  # noqa: E402
from declared_egress import Exchange  # noqa: E402

PAGE = ROOT / "docs" / "security" / "egress.md"
SOURCES = {"tacit_protocol": "protocol", "tacit_services": "services"}

INTRODUCTION = """# Everything that leaves

<!-- Written by `python docs/site/egress.py` from the code: change the code, and write it again. -->

Every field of every message that an agent, a curator or a tester sends. An auditor who doubts that raw data
stay where they are reads the rows marked **noised** and **keyed** here, the page of each
[procedure's release](../security/releases/README.md), and the code that they name.

| kind | what it tells about data |
|---|---|
| public | nothing: written before data are read, or the number of units, which [neighbours share](../threat-model.md#what-is-public) |
| **noised** | what a differentially private mechanism let out, debited before it was drawn |
| post-processed | what anyone can compute from what is public and noised |
| sealed | a noised release, encrypted to one owner |
| **keyed** | a function of record ids under a key that two owners share: [not private](../how-to/align-two-owners.md#what-the-file-tells) by itself |
| owner's own | goes to the owner of the data, and to nobody else (at a curator also to its operator) |

*Where made* names the function or class. A field without a kind is refused by `tests/project/test_egress.py`;
`tests/end_to_end/test_egress.py` runs a federation of real processes, records what every agent, curator and
tester sends, and finds each path, header and claim here. **Not in any row**: when a message is sent, and whether.
[Times](#times) follow a schedule; that an owner declines can say something, which the
[threat model](../threat-model.md#timing-and-other-side-doors) lists.
"""

TIMES = """## Times

How long an owner's data take to compute may depend on them. *The moment* is the one at which a study's
[answer leaves](../decisions/0013-answers-on-a-schedule.md): until then a study that was approved is shown as approved, since its
approval, and at its deadline as expired. One function says what others are shown
(`tacit_services.agent.study.studies:as_shown`); `tests/attacks/test_times.py` and `test_declines.py` compare, second by
second, a short computation with a long one.

| what | who sees it | moves |
|---|---|---|
| requests to the tester, answers and polls | the tester | by loops that never wait for computing; an answer at the moment |
| what the tester shows of an owner or a curator | every enrolled party | when the tester receives it |
| numbers of studies by state in `/metrics`, of agent and curator | who may reach the port | with decisions, at the moment, at the deadline |
| durations of requests in `/metrics` | who may reach the port | with requests; a busy processor lengthens them: keep the port within the institution |
| `/healthz`, `/readyz`, `retry-after` | anyone | with the service's loops, disk and database, not with studies |
| a curator's studies: state, `changed_at`, problem, reason, order and filter of lists | their owners, the operator | with decisions, at the moment, at the deadline |
| a curator's accounts and ledger: entries, their order and `at`, what is left | the account's owner, the operator | with the last owner's approval, before a row is read |
| what comes of an owner's decline, or of its data set changed or deleted after the approval | the study's owners, the tester | the same whether it was computed before or not: a person may decline until the moment, and a changed data set is looked at then |
| `at` of an agent's ledger, also in exports | the owner's own people, and whoever is given them | dated as the schedule began: the approval, or what was waited for |
| whether an entry is in an agent's ledger, states, `changed_at`, `found_at`, `/v1/status`, pages, commands | the owner's own people alone | exact |
| `shown_from` of a held release, and that one is held | the owner's own people alone | exact; it is looked at from the moment on |
| notices | the owner's mailboxes and webhooks, and who carries them | with arrivals, decisions and deadlines; a held release, and that a data set is locked, at the moment; budgets by what the tester has taken |
| log lines | who runs the machine; whoever is given them | exact: hand out no logs of studies whose answer has not left |
| catalogue | every enrolled party | with settings and policy |
| when a Dask cluster or a database computes | who runs it: the institution | exact |

With `respond_after_s = 0` there is no schedule, and a study tells how long it took.
"""


def cell(text: str) -> str:
    """Return text for a table's cell."""
    return text.replace("|", "\\|")


def place(made: str) -> str:
    """Return a link to the file of a ``module:name``."""
    module, _, name = made.partition(":")
    file = Path(SOURCES[module.partition(".")[0]], *module.split("."))
    path = f"{file}.py" if (ROOT / f"{file}.py").exists() else f"{file}/__init__.py"
    return f"[`{name}`](../../{path})"


def kind_of(found: Egress) -> str:
    """Return a field's kind, in bold where an auditor has to look."""
    return f"**{found.kind}**" if found.kind in {"noised", "keyed"} else found.kind


def rows_of(fields: Iterable[tuple[str, Egress]]) -> Iterator[str]:
    """Yield the rows of a table; fields that are told in the same words share one."""
    grouped: dict[Egress, dict[str, None]] = {}
    for path, found in fields:
        grouped.setdefault(found, {})[path] = None
    yield "| field | kind | where made | why |"
    yield "|---|---|---|---|"
    for found, paths in grouped.items():
        names = ", ".join(f"`{path}`" for path in paths)
        yield cell_row(names, kind_of(found), place(found.made), found.why)


def cell_row(*cells: str) -> str:
    """Return one row of a table."""
    return "| " + " | ".join(cell(one) for one in cells) + " |"


def messages() -> Iterator[str]:
    """Yield the part on signed messages."""
    yield "## Signed messages"
    yield ""
    yield "Each is a payload of [exact bytes](../decisions/0002-exact-bytes.md) in an envelope, signed by its maker."
    for kind, model in egress.PAYLOADS.items():
        yield from ("", f"### {model.__name__}", "", f"Sent by {egress.SENDERS[kind]}. `{kind}`", "")
        yield from rows_of(egress_of(model))
    for title, text, fields in (
        ("The envelope", "Around every signed message.", egress_of(Envelope)),
        (
            "The package of a sealed release",
            "A statement's envelope, and the ciphertext, which stands in no transcript.",
            egress.PACKAGE.items(),
        ),
        ("The transcript", "Envelopes as they came.", egress.TRANSCRIPT.items()),
    ):
        yield from ("", f"### {title}", "", text, "")
        yield from rows_of(fields)


def procedures() -> Iterator[str]:
    """Yield the part on what procedures put into studies and verdicts."""
    yield "## Parameters and verdicts of each procedure"
    yield ""
    yield "`parameters` of a study are public: the analyst writes them. `result` of a verdict is post-processed:"
    yield "`assemble` is handed the study and the releases and nothing else, and runs again at every verifier."
    yield ""
    yield "| procedure | parameters | `result` |"
    yield "|---|---|---|"
    for name, procedure in PROCEDURES.items():
        result, told = listed(procedure.Verdict), set(procedure.Verdict.model_fields)
        relayed = procedure.RelayedVerdict or procedure.Verdict
        if relayed is not procedure.Verdict:
            result += "; of a study between two owners: " + listed(relayed)
        told |= set(relayed.model_fields)
        for other in egress.verdicts_of(procedure):
            if not set(other.model_fields) <= told:
                result += f"; as `{other.__name__}`: " + listed(other)
        yield cell_row(f"[`{name}`](releases/{name}.md)", listed(procedure.Parameters), result)


def listed(model: type[BaseModel]) -> str:
    """Return the names of a model's fields."""
    return ", ".join(f"`{name}`" for name in model.model_fields)


def around() -> Iterator[str]:
    """Yield the part on what travels around messages."""
    yield "## Requests of an agent or a curator"
    yield ""
    yield "All that it asks the tester, and what goes with it besides path, headers and token. Paths name the study"
    yield "and the asking party."
    yield from ("", "| request | holds |", "|---|---|")
    for route, held in egress.REQUESTS.items():
        yield cell_row(f"`{route}`", held)
    yield from ("", "Claims of its token, signed with its own key:", "", "| claim | is |", "|---|---|")
    for claim, said in CLAIMS.items():
        yield cell_row(f"`{claim}`", said)
    yield from ("", "Headers of a request:", "")
    yield from rows_of(egress.REQUEST_HEADERS.items())
    yield from ("", "Headers of an answer:", "")
    yield from rows_of(egress.ANSWER_HEADERS.items())
    yield from ("", "Every error is a problem document:", "")
    yield from rows_of(egress.PROBLEM.items())


def answers() -> Iterator[str]:
    """Yield the part on every route's answers."""
    for service, routes in egress.ROUTES.items():
        yield from ("", f"## Answers of {'an' if service == 'agent' else 'a'} {service}", "")
        yield "| route | who may read | fields |"
        yield "|---|---|---|"
        for route, exchange in routes.items():
            yield cell_row(f"`{route}`", exchange.reader, answer(exchange))


def answer(exchange: Exchange) -> str:
    """Return what a route answers, in a cell."""
    forms: tuple[tuple[Mapping[str, Egress], str], ...] = (
        (egress.ENVELOPE, "an envelope"),
        (
            {**egress.ENVELOPE, **egress.PACKAGE},
            "a sealed release's package; of a release in the open, its envelope",
        ),
        (egress.TRANSCRIPT, "the transcript"),
    )
    parts = [text for fields, text in forms if exchange.answer == fields]
    if not parts:
        grouped: dict[str, list[str]] = {}
        for path, found in exchange.answer.items():
            grouped.setdefault(kind_of(found), []).append("everything" if path == "**" else f"`{path}`")
        parts = [f"{kind}: {', '.join(paths)}" for kind, paths in grouped.items()]
    return "; ".join([*parts, *([exchange.note] if exchange.note else [])])


def elsewhere() -> Iterator[str]:
    """Yield the part on what does not travel between parties."""
    yield "## What stays at home"
    yield ""
    yield "- A **Dask cluster** is the institution's own: its workers see rows, and never noise"
    yield "  ([decision 0019](../decisions/0019-workers-see-rows-never-noise.md))."
    yield "- The **ledger** and the data sources are databases and files of the owner's."
    yield "- **Commands** of an owner send its key's enrolment to the tester, and `tacit owner upload` its rows to the"
    yield "  curator that it chose."
    yield "- **Notices** go to the owner's own mailboxes and webhooks, if it sets any: the owner's name, a study's title or a data"
    yield "  set's name, and a link ([what they tell](../how-to/get-notices.md#what-it-tells-to-whoever-reads-the-mailbox))."
    yield "- **Logs** are JSON lines on the process's own stderr; exceptions are logged without their message. Every"
    yield "  line that a service writes, and its fields beside `event`, `level`, `timestamp` and `request_id`:"
    yield from ("", "| event | fields | where |", "|---|---|---|")
    for event, fields, file in sorted(set(log_lines())):
        yield cell_row(f"`{event}`", fields, f"[`{file}`](../../{file})")


def log_lines() -> Iterator[tuple[str, str, str]]:
    """Yield each line that a service logs: its event, its fields, and its file."""
    for file in sorted((ROOT / "services").rglob("*.py")):
        for call in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
                continue
            event = call.args[0] if call.args else None
            if not (isinstance(event, ast.Constant) and isinstance(event.value, str)):
                continue
            if isinstance(call.func.value, ast.Name) and call.func.value.id == "log":
                fields = ", ".join(f"`{word.arg}`" for word in call.keywords)
                yield event.value, fields, str(file.relative_to(ROOT))
            elif call.func.attr == "tell":  # tacit_services.shared.http_server:Places.tell
                yield event.value, "`times`, `taken`, `strangers`", str(file.relative_to(ROOT))


def text() -> str:
    """Return the page."""
    parts = (messages(), [""], procedures(), [""], around(), answers(), ["", TIMES], elsewhere())
    return INTRODUCTION + "\n" + "\n".join(line for part in parts for line in part) + "\n"


if __name__ == "__main__":
    PAGE.write_text(text(), "utf-8")
