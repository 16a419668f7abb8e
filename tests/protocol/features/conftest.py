"""The feature tests share the definitions in 50-digit arithmetic."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
