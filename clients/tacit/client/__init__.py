"""Clients of a tester, a curator and one's own agent, blocking and asynchronous, over one transport."""
