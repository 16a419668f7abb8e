"""The agent: the service that a data owner runs next to its data.

It pulls studies from the tester, decides by the owner's policy and steward, spends from the owner's ledger,
and sends releases. Nothing reaches it from outside; its own HTTP interface is for the owner alone. A curator
takes owners' part by the same modules: intake, participant, policy, releases, studies.
"""
