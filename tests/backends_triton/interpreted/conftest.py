import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

# Collected by ../test_interpreted.py alone, in a process that was started for it.
collect_ignore_glob = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["test_*.py"]
