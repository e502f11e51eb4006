#!/usr/bin/env python3
"""Set up .venv in this folder and run beamsieve: its main job, or its tests.

    python3 dev.py demo [OPTION…]        the main job; options go to `beamsieve demo`
    python3 dev.py test [PYTEST OPTION…] the tests, then conformance of reference and torch
    python3 dev.py setup                 only what both need

Runs on a bare Python 3.11 or later. The set-up is repeated only when pyproject.toml or
constraints.txt (or this file) has changed; removing .venv starts afresh.
"""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent
VENV = ROOT / ".venv"
SCRIPTS = VENV / ("Scripts" if os.name == "nt" else "bin")
STAMP = VENV / "beamsieve-setup"
LOWEST = (3, 11)
CONFORMANCE = ("reference", "torch:cpu", "torch:cpu?projection=compiled")
TESTS_AT_ONCE = 4
SECONDS_TO_END = 30


def say(text):
    """Print a line to stderr, so that stdout stays the command's own."""
    print("dev.py: " + text, file=sys.stderr, flush=True)


def find_python():
    """Path of a Python that is new enough: this one, or another on the PATH."""
    if sys.version_info >= LOWEST:
        return sys.executable
    for minor in range(20, LOWEST[1] - 1, -1):
        found = shutil.which(f"python3.{minor}")
        # A launcher may be on the PATH without the version behind it.
        if found and subprocess.call([found, "-c", ""], stderr=subprocess.DEVNULL) == 0:
            return found
    wanted = ".".join(str(part) for part in LOWEST)
    here = ".".join(str(part) for part in sys.version_info[:3])
    say(f"needs Python {wanted} or later, and this is {here}; install one and run it again.")
    raise SystemExit(2)


def fingerprint(python):
    """What the set-up depends on, as one line."""
    digest = hashlib.sha256()
    for name in ("pyproject.toml", "constraints.txt", "dev.py"):
        digest.update((ROOT / name).read_bytes())
    # As .venv's own Python is a link to the one it was made with, activating it changes nothing.
    digest.update((os.path.realpath(python) + str(ROOT)).encode())
    return digest.hexdigest()


def set_up():
    """Make .venv and install the project into it, unless that is done already."""
    python = find_python()
    wanted = fingerprint(python)
    if STAMP.is_file() and STAMP.read_text() == wanted:
        return
    say("setting up .venv (two or three minutes, this once)")
    pip = [str(SCRIPTS / "python"), "-m", "pip", "install", "--quiet"]
    # Bytecode is made at the first import, of what is imported: most of torch never is.
    pip += ["--disable-pip-version-check", "--no-compile"]
    if not (SCRIPTS / "python").exists() and not (SCRIPTS / "python.exe").exists():
        made = subprocess.run([python, "-m", "venv", "--clear", str(VENV)], stdout=sys.stderr)
        if made.returncode != 0:
            say("could not make .venv; install your system's package for Python's venv module.")
            raise SystemExit(1)
        # The one that comes with Python may look through all that an index offers for twenty
        # seconds longer; where there is no other, it does.
        subprocess.run([*pip, "pip>=26"], cwd=ROOT, stdout=sys.stderr)
    STAMP.unlink(missing_ok=True)
    pip += ["--constraint", "constraints.txt"]
    installed = subprocess.run([*pip, "--editable", ".[dev]"], cwd=ROOT, stdout=sys.stderr)
    if installed.returncode != 0:
        say("the installation failed, as pip says above; mend that and run the command again.")
        raise SystemExit(1)
    STAMP.write_text(wanted)


def run(*command, **environment):
    """Run a command of .venv in this folder; its exit code.

    Ctrl-C reaches the command too, which is then given the time to end its own processes.
    """
    path = os.pathsep.join((str(SCRIPTS), os.environ.get("PATH", "")))
    full = dict(os.environ, PATH=path, VIRTUAL_ENV=str(VENV), **environment)
    # Without bytecode each start of torch would take three seconds more. It lies in .venv, also
    # for who wants none beside the sources.
    full.setdefault("PYTHONPYCACHEPREFIX", str(VENV / "bytecode"))
    full.pop("PYTHONDONTWRITEBYTECODE", None)
    process = subprocess.Popen([str(SCRIPTS / command[0]), *command[1:]], cwd=ROOT, env=full)
    try:
        return process.wait()
    except KeyboardInterrupt:
        try:
            process.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            process.kill()
        raise


def demo(options):
    """The main job."""
    return run("beamsieve", "demo", *options)


def test(options):
    """Tests, then the conformance suite; with options, only the tests that they choose."""
    # One worker a core; torch's own threads on top would only make them wait for each other.
    workers = str(min(TESTS_AT_ONCE, os.cpu_count() or 1))
    threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    if options:
        return run("pytest", *options, **threads)
    worst = run("pytest", "-n", workers, **threads)
    for backend in CONFORMANCE:
        shared = ("--quick", "--processes", workers)
        worst = run("beamsieve", "conformance", backend, *shared) or worst
    return worst


COMMANDS = {"demo": demo, "test": test, "setup": lambda options: 0}


def main():
    """Do what the first argument names."""
    arguments = sys.argv[1:]
    if not arguments or arguments[0] not in COMMANDS:
        asked = arguments[:1] in (["-h"], ["--help"])
        if arguments and not asked:
            say(f"there is no command {arguments[0]!r}:")
        print(__doc__.strip())
        return 0 if asked else 2
    set_up()
    return COMMANDS[arguments[0]](arguments[1:])


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
