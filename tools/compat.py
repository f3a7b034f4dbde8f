"""Losslessness of the tiny models on the oldest supported torch and transformers, in an environment of their own.

Writes results/compat.json: command, date, machine, versions and the number of tests that passed.
"""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv-compat"
PYTHON = VENV / "bin" / "python"
OLDEST = ("torch==2.11.*", "transformers==5.17.*")
TESTS = "tests/lossless/test_tiny.py"


def prepare() -> None:
    """Make the environment. PyPI's torch 2.11 brings CUDA libraries on Linux: several gigabytes."""
    if not PYTHON.exists():
        venv.create(VENV, with_pip=True)
    tools = ("pytest", "pytest-timeout", "hypothesis")
    command = [PYTHON, "-m", "pip", "install", "--quiet", *OLDEST, "-r", ROOT / "requirements.txt", *tools]
    subprocess.run(command, check=True)


def record() -> int:
    """Run the tests with the interpreter that runs this, and save what happened."""
    sys.path.insert(0, str(ROOT))
    from tests.results import provenance, save

    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", TESTS, f"--junitxml={report}", "-p", "no:cacheprovider"]
        code = subprocess.run(command, cwd=ROOT).returncode
        suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    counts = {name: int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")}
    save(provenance("make compat") | {"tests": TESTS, "counts": counts}, ROOT / "results" / "compat.json")
    return code


if __name__ == "__main__":
    if Path(sys.prefix) == VENV:
        sys.exit(record())
    prepare()
    sys.exit(subprocess.run([PYTHON, __file__], cwd=ROOT).returncode)
