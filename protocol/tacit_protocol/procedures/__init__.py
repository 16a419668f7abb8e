"""One package or module for each procedure, found by :mod:`~tacit_protocol.procedures.discovery` by itself."""
