"""How commands are run that ask a service or print what others wrote, in a folder with everyone's files.

Files have the names that ``init`` gives them, such as ``party/party.toml``; ``DIGEST`` stands for a study's.
"""

MARK = "evil"
"""What hostile names hold, and files that are written."""

AGENT, TESTER, CURATOR = (["--config", f"{name}/{name}.toml"] for name in ("agent", "tester", "curator"))
PARTY, OWNER = ["--party", "party/party.toml"], ["--owner", "owner/owner.toml"]

FILE = ["transcript.json"]
NAMED, INVITED = ["--name", "x"], ["--invitation", "x"]
LINES: dict[str, list[str]] = {
    **dict.fromkeys(("verify", "study verify"), FILE),
    "study report": [*FILE, "--output", "report.html"],
    "study adjust": [*FILE, *FILE],
    "study transcript": ["DIGEST", "--output", f"{MARK}\x1b[2J.json", *PARTY],
    "study create": ["draft.toml", "--dry-run", *PARTY],
    "study envelope": ["DIGEST", "--output", f"{MARK}\x1b[2J.dsse", *PARTY],
    "study deliver": ["answer.dsse", *PARTY],
    **{key: ["DIGEST", *PARTY] for key in ("study show", "study watch", "study cancel")},
    **dict.fromkeys(("study list", "study data-sets", "party list", "party login"), PARTY),
    **dict.fromkeys(("party invitations", "tester login"), TESTER),
    **{
        f"{noun} users {verb}": [*words, *where]
        for noun, where in (
            *(("party", PARTY), ("tester", TESTER), ("curator", CURATOR)),
            *(("agent", AGENT), ("owner", OWNER)),
        )
        for verb, words in (
            ("list", []),
            ("add", ["ann", "--role", "viewer"]),
            ("remove", ["ann"]),
            ("record", []),
        )
    },
    **dict.fromkeys(("curator invitations", "curator owners", "curator status"), CURATOR),
    **{
        f"{noun} {verb}": [*words, *where]
        for noun, where in (("curator", CURATOR), ("owner", OWNER))
        for verb, words in (
            *((verb, []) for verb in ("data-sets", "studies", "ledger", "verify-ledger", "login")),
            *(("show", ["DIGEST"]), ("delete", ["--data-set", "patients", "--yes"]), ("enrol", INVITED)),
        )
    },
    **dict.fromkeys(("agent status", "agent login", "ledger show", "ledger verify", "data check"), AGENT),
    "owner decline": ["DIGEST", *OWNER],
    "owner approve": ["DIGEST", "--yes", *OWNER],
    **{f"agent {verb}": ["DIGEST", "--yes", *AGENT] for verb in ("approve", "send")},
    **{f"agent {verb}": ["DIGEST", *AGENT] for verb in ("show", "reuses", "decline", "result")},
    "party invite": ["--role", "owner", *NAMED, *TESTER],
    "party revoke": [*NAMED, *TESTER],
    **{key: [*NAMED, *CURATOR] for key in ("curator invite", "curator revoke")},
    "party enrol": [*INVITED, *PARTY],
    "agent enrol": [*INVITED, *AGENT],
    **{key: ["--all", *AGENT] for key in ("agent studies",)},
    "owner register": ["--file", "data-set.toml", *OWNER],
    "owner upload": ["rows.csv", "--data-set", "patients", *OWNER],
    "ledger export": ["--output", "ledger.json", *AGENT],
    "doctor": ["--config", "party/party.toml"],
    "data describe": ["rows.csv"],
    "release show": ["released.parquet"],
    "release expect": ["released.parquet", "--column", "age"],
    "release sample": ["released.parquet", "--rows", "3", "--output", f"{MARK}\x1b[2J.csv"],
    "release export": ["released.parquet", "--output", f"{MARK}\x1b[2J.parquet"],
    "release compare": ["released.parquet", "released.parquet"],
}
"""The arguments of every command that prints what others wrote: services, files, results."""
