import os

# Collected by ../test_interpreted.py alone, in a process that was started for it.
collect_ignore_glob = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["test_*.py"]
