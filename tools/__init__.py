"""Programs for developers of Tacit, and of what speaks as it does. No part of what is installed."""
