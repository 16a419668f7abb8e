"""The audits share modules that are not tests: searches, and the cases they are turned on."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
