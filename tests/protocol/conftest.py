"""The tests of the protocol share definitions in 50-digit arithmetic, made-up studies, and tampering."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
