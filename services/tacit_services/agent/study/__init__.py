"""Studies at an agent, or at a curator that plays owners' part: taken in, decided, released and sent."""
