"""What the parties of a Tacit study agree on: messages, privacy, statistics and procedures.

Pure: no network, no database, no clock, no files. Noise is handed in. An owner who wants to audit
Tacit reads this package; nothing else decides what leaves the building.
"""
